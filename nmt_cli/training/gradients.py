"""The gradient of an update: a sum over micro-batches and ranks (section 5.1: eight GPUs)."""

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
        self.model = model
        self.criterion = criterion
        self.precision = precision
        self.auxiliary = [module for module in model.modules() if isinstance(module, AddsLoss)]

    def __call__(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the loss to minimise and the nll, each summed over the target tokens."""
        with autocast(batch.source.device, self.precision):
            loss = self.criterion(self.model, batch)
        total = loss.total
        for module in self.auxiliary:  # a mean: all terms are divided by the update's tokens later
            total = total + loss.num_tokens * module.added_loss()
        return total, loss.nll


class Gradients:
    """Adds up gradients in the parameters, and sums them over the ranks.

    Args:
        flat: have the gradients in one tensor.
    """

    replayed = False  # whether `add` replays what the device has recorded

    def __init__(
        self,
        objective: Objective,
        optimizer: torch.optim.Optimizer,
        scaler: torch.amp.GradScaler,
        world: World,
        flat: bool,
    ) -> None:
        self.objective = objective
        self.optimizer = optimizer
        self.scaler = scaler
        self.world = world
        self.parameters = trained(objective.model)
        self.flattened: list[nn.Parameter] = []  # their gradients are views of `self.flat`
        self.separate: list[nn.Parameter] = []  # each has a gradient of its own
        for parameter in self.parameters:
            # A part of a divided parameter is on one rank only, so its gradient is not summed.
            if flat and ranks_of(parameter) == 1:
                self.flattened.append(parameter)
            else:
                self.separate.append(parameter)
        self.flat: Tensor | None = None  # [numbers of all in `flattened`]

    def clear(self) -> None:
        """Set the gradients to zero."""
        for parameter in self.separate:
            parameter.grad = None
        if self.flat is not None:
            self.flat.zero_()
        elif self.flattened:
            sizes = [parameter.numel() for parameter in self.flattened]
            self.flat = torch.zeros(sum(sizes), device=self.world.device)
            parts = torch.split(self.flat, sizes)
            for parameter, part in zip(self.flattened, parts, strict=True):
                parameter.grad = part.view_as(parameter)

    def add(self, batch: Batch, weight: float) -> Tensor:
        """Add the gradient of `weight` times the loss of `batch`.

        Returns:
            Loss and nll, without weight: [2] in float64. The next call may overwrite them.

        Raises:
            TrainingError: another rank was lost.
        """
        factor = torch.full((), weight, device=self.world.device)
        with explain_lost_ranks(computing=True):  # layers may be spread over the ranks
            return self.compute(batch.to(self.world.device), factor)

    def compute(self, batch: Batch, factor: Tensor) -> Tensor:
        """Do `add` for a batch that is on the device."""
        total, nll = self.objective(batch)
        self.differentiate(self.scaler.scale(total * factor))
        return torch.stack([total.detach().double(), nll.double()])

    def differentiate(self, loss: Tensor) -> None:
        """Add the gradient of `loss` to the gradients of the parameters."""
        loss.backward()  # type: ignore[no-untyped-call]

    def finish(self) -> list[Tensor]:
        """Sum the gradients over the ranks, and return the gradients that this rank counts.

        One rank counts each gradient, so that their norms can be added up over the ranks.

        Raises:
            TrainingError: another rank was lost.
        """
        if self.flat is not None and self.world.size > 1:
            with explain_lost_ranks():
                dist.all_reduce(self.flat)
        self.scaler.unscale_(self.optimizer)
        counted = self.separate
        if self.world.is_main:
            counted = self.parameters
        return [parameter.grad for parameter in counted if parameter.grad is not None]

    def forget(self) -> None:
        """Free the memory that is kept for the next batches."""
