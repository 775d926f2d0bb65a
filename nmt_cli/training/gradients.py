"""The gradient of an update, a sum over micro-batches and ranks (section 5.1: the paper's eight
GPUs).
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from nmt_cli.device import autocast
from nmt_cli.distributed import World, explain_lost_ranks, ranks_of
from nmt_cli.interfaces import AddsLoss, Batch, Criterion


def trained(model: nn.Module) -> list[nn.Parameter]:
    """Return the parameters that an update changes."""
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


class Objective:
    """The loss of a batch."""

    def __init__(self, model: Any, criterion: Criterion, precision: str) -> None:
        self.model, self.criterion, self.precision = model, criterion, precision
        self.adding = [module for module in model.modules() if isinstance(module, AddsLoss)]

    def __call__(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the loss to minimise and the negative log-likelihood, each summed over target
        tokens.
        """
        with autocast(batch.source.device, self.precision):
            loss = self.criterion(self.model, batch)
        total = loss.total
        for module in self.adding:  # later divided by the tokens of the update, as the other terms
            total = total + loss.num_tokens * module.added_loss()
        return total, loss.nll


class Gradients:
    """Adds up gradients in the parameters, and sums them over the ranks.

    Args:
        flat: have the gradients in one tensor.
    """

    # Whether the host computes nothing in `add`, so that it cannot ask about a number of the
    # device.
    replayed = False

    def __init__(
        self,
        objective: Objective,
        optimizer: torch.optim.Optimizer,
        scaler: torch.amp.GradScaler,
        world: World,
        flat: bool,
    ) -> None:
        self.objective, self.optimizer, self.scaler, self.world = (
            objective,
            optimizer,
            scaler,
            world,
        )
        self.parameters = trained(objective.model)
        # The host knows what ranks exchange for the parameters that they divide.
        self.fixed = [
            parameter for parameter in self.parameters if flat and ranks_of(parameter) == 1
        ]
        self.loose = [
            parameter for parameter in self.parameters if not flat or ranks_of(parameter) > 1
        ]
        # The gradients of `fixed` in one tensor, which are views of it.
        self.flat: Tensor | None = None

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
        """Add the gradient of `weight` times the loss of `batch`; return loss and nll, without
        weight: [2] in float64.

        The next call may overwrite what is returned.

        Raises:
            TrainingError: another rank was lost.
        """
        factor = torch.full((), weight, device=self.world.device)
        with explain_lost_ranks(computing=True):  # layers may be spread over the ranks
            return self.compute(batch.to(self.world.device), factor)

    def compute(self, batch: Batch, factor: Tensor) -> Tensor:
        """See `add`; the batch is on the device."""
        total, nll = self.objective(batch)
        self.scaler.scale(total * factor).backward()  # type: ignore[no-untyped-call]
        return torch.stack([total.detach().double(), nll.double()])

    def finish(self) -> list[Tensor]:
        """Sum the gradients over the ranks, and return those that no lower rank returns.

        Raises:
            TrainingError: another rank was lost.
        """
        if self.flat is not None and self.world.size > 1:
            with explain_lost_ranks():
                dist.all_reduce(self.flat)
        self.scaler.unscale_(self.optimizer)
        returned = self.parameters if self.world.is_main else self.loose
        return [parameter.grad for parameter in returned if parameter.grad is not None]

    def forget(self) -> None:
        """Free the memory that is kept for the next batches."""
