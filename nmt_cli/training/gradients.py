"""The gradient of an update, a sum over micro-batches and ranks (section 5.1: the paper's eight GPUs)."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from nmt_cli.device import autocast
from nmt_cli.distributed import explain_lost_ranks
from nmt_cli.interfaces import AddsLoss, Batch, Criterion
from nmt_cli.training.freezing import trained
from nmt_cli.training.setup import Setup


class Objective:
    """The loss of a batch."""

    def __init__(self, model: Any, criterion: Criterion, precision: str) -> None:
        self.model, self.criterion, self.precision = model, criterion, precision
        self.adding = [module for module in model.modules() if isinstance(module, AddsLoss)]

    def __call__(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the loss to minimise and the negative log-likelihood, each summed over target tokens."""
        with autocast(batch.source.device, self.precision):
            loss = self.criterion(self.model, batch)
        total = loss.total
        for module in self.adding:  # later divided by the tokens of the update, as the other terms
            total = total + loss.num_tokens * module.added_loss()
        return total, loss.nll


class Gradients:
    """Adds up gradients in the parameters, and sums them over the ranks."""

    def __init__(self, setup: Setup) -> None:
        self.objective, self.world = Objective(setup.model, setup.criterion, setup.precision), setup.world
        several, parameters = setup.world.size > 1, trained(setup.model)
        self.summed = [each for each in parameters if several and not is_sharded(each)]
        self.own = [each for each in parameters if not several or is_sharded(each)]
        self.flat: Tensor | None = None  # the gradients of `summed` in one tensor, which are views of it

    def clear(self) -> None:
        """Set the gradients to zero."""
        for parameter in self.own:
            parameter.grad = None
        if self.flat is not None:
            self.flat.zero_()
        elif self.summed:
            sizes = [parameter.numel() for parameter in self.summed]
            self.flat = torch.zeros(sum(sizes), device=self.world.device)
            for parameter, part in zip(self.summed, self.flat.split(sizes), strict=True):
                parameter.grad = part.view_as(parameter)

    def add(self, batch: Batch, weight: float) -> Tensor:
        """Add the gradient of `weight` times the loss of `batch`; return loss and nll, without weight: [2] in float64.

        Raises:
            TrainingError: another rank was lost.
        """
        with explain_lost_ranks(computing=True):  # layers may be spread over the ranks
            total, nll = self.objective(batch)
            (total * weight).backward()
        return torch.stack([total.detach().double(), nll.double()])

    def sum_over_ranks(self) -> None:
        """Sum the gradients of parameters that all ranks have; raise a TrainingError if another rank was lost."""
        if self.flat is not None:
            with explain_lost_ranks():
                dist.all_reduce(self.flat)


def is_sharded(parameter: nn.Parameter) -> bool:
    """Return whether `parameter` belongs to this rank alone, so that its gradient here is complete."""
    return getattr(parameter, "sharded", False)
