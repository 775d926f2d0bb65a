"""The gradient of an update, a sum over micro-batches and ranks (section 5.1: the paper's eight GPUs)."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from nmt_cli.device import autocast
from nmt_cli.distributed import explain_lost_ranks
from nmt_cli.interfaces import AddsLoss, Batch, Criterion
from nmt_cli.training.setup import Setup


class Objective(nn.Module):
    """The loss of a batch as a module, for `DistributedDataParallel`."""

    def __init__(self, model: Any, criterion: Criterion, precision: str) -> None:
        super().__init__()
        self.model, self.criterion, self.precision = model, criterion, precision
        self.adding = [module for module in model.modules() if isinstance(module, AddsLoss)]

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the loss to minimise and the negative log-likelihood, each summed over target tokens."""
        with autocast(batch.source.device, self.precision):
            loss = self.criterion(self.model, batch)
        total = loss.total
        for module in self.adding:  # later divided by the tokens of the update, as the other terms
            total = total + loss.num_tokens * module.added_loss()
        return total, loss.nll


class Gradients:
    """Adds up gradients in the parameters, and sums them over the ranks while the last backward pass runs."""

    def __init__(self, setup: Setup) -> None:
        self.objective, self.world = Objective(setup.model, setup.criterion, setup.precision), setup.world
        self.reducing = None if self.world.size == 1 else reducing(self.objective)

    def add(self, batch: Batch, weight: float, last: bool = False) -> Tensor:
        """Add the gradient of `weight` times the loss of `batch`; return loss and nll, without weight: [2] in float64.

        With the `last` one of this rank in an update, the gradients become the sum over all ranks.

        Raises:
            TrainingError: another rank was lost.
        """
        objective = self.objective if self.reducing is None or not last else self.reducing
        with explain_lost_ranks(computing=True):
            total, nll = objective(batch)
            (total * (weight * self.world.size)).backward()  # the mean over the ranks becomes the sum
        return torch.stack([total.detach().double(), nll.double()])


def reducing(objective: Objective) -> DistributedDataParallel:
    """Return `objective` as a module whose backward pass takes the mean of the gradients over all ranks."""
    # Not with a static graph: torch would count the uses of a parameter in the first update, where ranks may have
    # different numbers of micro-batches. With unused parameters, torch keeps the order in which it sums; else it would
    # change after the first update of a process, and so the last bits of a resumed run.
    warnings.filterwarnings("ignore", message="find_unused_parameters=True was specified")
    with explain_lost_ranks():
        module = DistributedDataParallel(objective, gradient_as_bucket_view=True, find_unused_parameters=True)
    module.broadcast_buffers = False  # as an argument it is deprecated from torch 2.13 on, its successor new
    return module
