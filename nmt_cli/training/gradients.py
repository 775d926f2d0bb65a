"""The gradient of an update: a sum over micro-batches and ranks (section 5.1: eight GPUs)."""

from __future__ import annotations

from functools import partial
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


def in_pieces(model: Any, parameters: list[nn.Parameter]) -> list[list[nn.Parameter]]:
    """Return the parameters in the order in which the backward pass completes their gradients.

    The decoder's are first, then the encoder's, then all others, such as tied embeddings. A
    parameter of two parts belongs to the later one.
    """
    places = dict.fromkeys(parameters, 2)
    parts = model.parts()
    for place, name in enumerate(("decoder", "encoder", "embeddings")):
        for module in parts.get(name, ()):
            places |= dict.fromkeys(module.parameters(), place)
    return [[parameter for parameter in parameters if places[parameter] == i] for i in range(3)]


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
        flattened: list[nn.Parameter] = []  # their gradients are views of `self.flat`
        self.separate: list[nn.Parameter] = []  # each has a gradient of its own
        for parameter in self.parameters:
            # A part of a divided parameter is on one rank only, so its gradient is not summed.
            if flat and ranks_of(parameter) == 1:
                flattened.append(parameter)
            else:
                self.separate.append(parameter)
        self.pieces = [flattened]
        # Divided layers communicate in the backward pass, which leaves no room for a sum: all
        # ranks have to communicate in one order.
        if not self.separate:
            self.pieces = in_pieces(objective.model, flattened)
        self.flat: Tensor | None = None  # [numbers of all in `pieces`]
        self.parts: tuple[Tensor, ...] = ()  # of `self.flat`, by piece
        self.sums: list[Any] = []  # over the ranks, of the first pieces
        self.missing: list[int] = []  # gradients of each piece, in an update's last backward pass

    def clear(self) -> None:
        """Set the gradients to zero."""
        for parameter in self.separate:
            parameter.grad = None
        if self.flat is not None:
            self.flat.zero_()
        else:
            self.make_flat()

    def make_flat(self) -> None:
        """Let the gradients of all pieces be views of one tensor."""
        sizes = [sum(parameter.numel() for parameter in piece) for piece in self.pieces]
        self.flat = torch.zeros(sum(sizes), device=self.world.device)
        self.parts = torch.split(self.flat, sizes)
        for place, piece in enumerate(self.pieces):
            views = torch.split(self.parts[place], [parameter.numel() for parameter in piece])
            for parameter, view in zip(piece, views, strict=True):
                parameter.grad = view.view_as(parameter)
                hook = partial(self.complete, place)
                parameter.register_post_accumulate_grad_hook(hook)  # type: ignore[no-untyped-call]

    def complete(self, place: int, parameter: Tensor) -> None:
        """Start the sum of a piece when its last gradient is complete."""
        if self.missing:
            self.missing[place] -= 1
        for number, missing in enumerate(self.missing):
            if missing:
                break
            self.start_sums(number + 1)

    def start_sums(self, count: int) -> None:
        """Start the sums of the first `count` pieces over the ranks.

        Their order is the same on all ranks, even if a parameter gets no gradient on some.
        """
        if self.world.size > 1:
            with explain_lost_ranks():
                for part in self.parts[len(self.sums) : count]:
                    self.sums.append(dist.all_reduce(part, async_op=True))

    def add(self, batch: Batch, weight: float, is_last: bool = False) -> Tensor:
        """Add the gradient of `weight` times the loss of `batch`.

        Args:
            is_last: of the update, so that the sum over the ranks starts in its backward pass.

        Returns:
            Loss and nll, without weight: [2] in float64. The next call may overwrite them.

        Raises:
            TrainingError: another rank was lost.
        """
        factor = torch.full((), weight, device=self.world.device)
        self.missing = [len(piece) for piece in self.pieces] if is_last else []
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
        self.start_sums(len(self.parts))
        with explain_lost_ranks():
            for started in self.sums:
                started.wait()
        self.sums = []
        self.scaler.unscale_(self.optimizer)
        counted = self.separate
        if self.world.is_main:
            counted = self.parameters
        return [parameter.grad for parameter in counted if parameter.grad is not None]

    def forget(self) -> None:
        """Free the memory that is kept for the next batches."""
