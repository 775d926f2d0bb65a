"""An exponential moving average of the weights, kept while training (`nmt train --ema-decay`).

A checkpoint's weights are the average. The weights that training goes on from are with the
optimizer's state.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from nmt_cli.annexes.later.settings import MovingAverageConfig
from nmt_cli.distributed import whole
from nmt_cli.training.observers import Observer
from nmt_cli.training.run import Run


class MovingAverage(Observer):
    """After step t, average = d * average + (1 - d) * weights.

    d is `ema_decay`, and (1 + t) / (10 + t) as long as this is less. With a constant d, the
    untrained weights would remain in the average of a short run.
    """

    def __init__(self, config: MovingAverageConfig, run: Run) -> None:
        super().__init__(config, run)
        self.decay = config.ema_decay
        self.parameters = dict(run.model.named_parameters())
        self.average = self.copies()

    def updated(self, step: int) -> None:
        share = 1 - min(self.decay, (1 + step) / (10 + step))
        with torch.no_grad():
            torch._foreach_lerp_(list(self.average.values()), list(self.parameters.values()), share)

    @contextlib.contextmanager
    def validating(self) -> Iterator[None]:
        """Let the model have the averaged weights."""
        # They are copied into the parameters, because CUDA graphs have these addresses.
        trained = self.copies()
        self.assign(self.average)
        try:
            yield
        finally:
            self.assign(trained)

    def saved(self, weights: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the average."""
        averages = {}
        for name, parameter in self.parameters.items():
            averages[name] = whole(self.average[name], parameter)
        return averages

    def resumed(self) -> None:
        """Take the average from the model."""
        self.average = self.copies()

    def copies(self) -> dict[str, Tensor]:
        """Return copies of the model's parameters."""
        return {name: parameter.detach().clone() for name, parameter in self.parameters.items()}

    def assign(self, weights: Mapping[str, Tensor]) -> None:
        """Copy weights into the model's parameters."""
        for name, weight in weights.items():
            self.parameters[name].detach().copy_(weight)
