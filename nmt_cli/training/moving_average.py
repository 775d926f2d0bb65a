"""An exponential moving average of the weights, kept while training (`nmt train --ema-decay`).

A checkpoint's weights are the average. The weights that training goes on from are with the optimizer's state.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from nmt_cli import checkpoint
from nmt_cli.distributed import whole

RAW = "raw."  # before the names of the weights that training goes on from, among the optimizer's tensors


class MovingAverage:
    """After step t, average = d * average + (1 - d) * weights, where d is `decay`, and (1 + t) / (10 + t) at first.

    With a constant d, the untrained weights would remain in the average of a short run. With a decay of 0 there is no
    average, and nothing below has an effect.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.model, self.decay = model, decay
        self.parameters = dict(model.named_parameters()) if decay else {}
        self.weights = {name: parameter.detach().clone() for name, parameter in self.parameters.items()}

    def update(self, step: int) -> None:
        if self.decay:
            share = 1 - min(self.decay, (1 + step) / (10 + step))
            with torch.no_grad():
                torch._foreach_lerp_(list(self.weights.values()), list(self.parameters.values()), share)

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        """Let the model have the averaged weights. They are copied, because CUDA graphs have the addresses."""
        trained = {name: parameter.detach().clone() for name, parameter in self.parameters.items()}
        self._assign(self.weights)
        try:
            yield
        finally:
            self._assign(trained)

    def dump(self, trained: dict[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Return a checkpoint's weights, and what resuming needs besides, of `checkpoint.weights_of` the model."""
        if not self.decay:
            return trained, {}
        weights = {name: whole(self.weights[name], parameter) for name, parameter in self.parameters.items()}
        return weights, {f"{RAW}{name}": weight for name, weight in trained.items()}

    def restore(self, tensors: dict[str, Tensor], place: str) -> None:
        """Take the average from the model, and the model's weights out of a checkpoint's `tensors` for resuming."""
        for name, parameter in self.parameters.items():
            self.weights[name].copy_(parameter.detach())
        if self.decay:
            raw = {name.removeprefix(RAW): tensors.pop(name) for name in list(tensors) if name.startswith(RAW)}
            checkpoint.assign_weights(self.model, raw, place)

    def _assign(self, weights: dict[str, Tensor]) -> None:
        for name, weight in weights.items():
            self.parameters[name].detach().copy_(weight)
