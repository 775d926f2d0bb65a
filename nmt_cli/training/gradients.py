"""The gradient of an update, a sum over micro-batches and ranks (section 5.1: the paper's eight GPUs)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from nmt_cli.device import autocast
from nmt_cli.distributed import explain_lost_ranks, sharers_of
from nmt_cli.interfaces import AddsLoss, Batch, Criterion
from nmt_cli.training.replay import Replay
from nmt_cli.training.setup import Setup

GRAPHS = {"cuda"}  # devices that have them


def trained(model: nn.Module) -> list[nn.Parameter]:
    """Return the parameters that an update changes."""
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


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
        self.setup, self.parameters = setup, trained(setup.model)
        divided = [each for each in self.parameters if sharers_of(each).size > 1]  # the host knows what ranks exchange
        settings = setup.settings
        wanted = settings.cuda_graphs and not settings.gradient_checkpointing  # it reads the state of dropout
        graphs = wanted and setup.packed and not divided and self.world.device.type in GRAPHS
        self.replay = Replay(self.compute, torch.zeros(()), self.world.device) if graphs else None
        self.loose = divided if graphs or self.world.size > 1 else self.parameters
        self.fixed = [] if self.loose is self.parameters else [p for p in self.parameters if sharers_of(p).size == 1]
        self.flat: Tensor | None = None  # the gradients of `fixed` in one tensor, which are views of it

    def clear(self) -> None:
        """Set the gradients to zero."""
        for parameter in self.loose:
            parameter.grad = None
        if self.flat is not None:
            self.flat.zero_()
        elif self.fixed:
            sizes = [parameter.numel() for parameter in self.fixed]
            self.flat = torch.zeros(sum(sizes), device=self.world.device)
            for parameter, part in zip(self.fixed, torch.split(self.flat, sizes), strict=True):
                parameter.grad = part.view_as(parameter)

    def add(self, batch: Batch, weight: float) -> Tensor:
        """Add the gradient of `weight` times the loss of `batch`; return loss and nll, without weight: [2] in float64.

        The next call may overwrite what is returned.

        Raises:
            TrainingError: another rank was lost.
        """
        factor, tokens = (torch.full((), value, device=self.world.device) for value in (weight, batch.num_tokens))
        if self.replay is not None:  # a graph would repeat a number of the host
            return self.replay(replace(batch, num_tokens=tokens), factor)  # type: ignore[arg-type, no-any-return]
        with explain_lost_ranks(computing=True):  # layers may be spread over the ranks
            return self.compute(batch.to(self.world.device), factor)

    def compute(self, batch: Batch, factor: Tensor) -> Tensor:
        total, nll = self.objective(batch)
        self.setup.scaler.scale(total * factor).backward()  # type: ignore[no-untyped-call]
        return torch.stack([total.detach().double(), nll.double()])

    def finish(self) -> list[Tensor]:
        """Sum the gradients over the ranks, and return those that no lower rank returns.

        Raises:
            TrainingError: another rank was lost.
        """
        if self.flat is not None and self.world.size > 1:
            with explain_lost_ranks():
                dist.all_reduce(self.flat)
        self.setup.scaler.unscale_(self.setup.optimizer)
        found = [parameter.grad for parameter in self.parameters if parameter.grad is not None]
        if self.flat is not None and self.flat.is_cuda and not self.loose:  # one tensor needs fewer launches
            found = [self.flat]
        return found if self.world.is_main else [each.grad for each in self.loose if each.grad is not None]
