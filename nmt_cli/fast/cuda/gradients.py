"""Gradients and changes of weights as CUDA graphs."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from nmt_cli.fast.cuda.replay import Replay
from nmt_cli.interfaces import Batch
from nmt_cli.training.gradients import Gradients


class ReplayedGradients(Gradients):
    """`Gradients` whose `add` is a CUDA graph for each shape of a batch."""

    replayed = True

    def __init__(self, plain: Gradients) -> None:
        super().__init__(plain.objective, plain.optimizer, plain.scaler, plain.world, flat=True)
        self.replay = Replay(self.compute, torch.zeros(()), self.world.device)

    def add(self, batch: Batch, weight: float) -> Tensor:
        """See `Gradients`."""
        # A graph would repeat a number of the host.
        factor = torch.full((), weight, device=self.world.device)
        tokens = torch.full((), batch.num_tokens, device=self.world.device)
        counted = replace(batch, num_tokens=tokens)  # type: ignore[arg-type]
        result: Tensor = self.replay(counted, factor)
        return result

    def differentiate(self, loss: Tensor) -> None:
        """See `Gradients`. A few launches add all gradients to their sums."""
        gradients = torch.autograd.grad(loss, self.parameters, materialize_grads=True)
        sums: Any = [parameter.grad for parameter in self.parameters]
        torch._foreach_add_(sums, gradients)

    def finish(self) -> list[Tensor]:
        """See `Gradients`. One tensor needs fewer launches."""
        gradients = super().finish()
        if gradients and self.flat is not None and self.flat.is_cuda:
            return [self.flat]
        return gradients

    def forget(self) -> None:
        """See `Gradients`."""
        self.replay.captured.clear()


def replayed_change(
    change: Callable[[Tensor], None], optimizer: torch.optim.Optimizer, device: torch.device
) -> Callable[[Tensor], None]:
    """Return `Trainer.change` as a CUDA graph."""
    warnings.filterwarnings("ignore", message="This instance was constructed with capturable=True")
    for group in optimizer.param_groups:  # a graph would repeat a rate of the host
        group.update(capturable=True, lr=torch.zeros((), device=device))
    # Not finite, so that a capture makes no step, and with a norm that is not clipped.
    return Replay(change, torch.tensor([math.nan, math.nan, 0.0]), device)
