"""Batches that grow in the first epochs (Smith et al. 2018)."""

from __future__ import annotations

from typing import Any

from nmt_cli.annexes.later.settings import BatchGrowthConfig
from nmt_cli.data.sentences import Sentences


class BatchGrowth(Sentences):
    """The limits of an update grow evenly, to their full value in epoch `batch_growth`."""

    def __init__(self, config: BatchGrowthConfig, **_: Any) -> None:
        self.epochs = config.batch_growth
        self.begins = range(self.epochs)

    def limit(self, epoch: int, limit: int) -> int:
        return limit * min(epoch + 1, self.epochs) // self.epochs

    def lines(self, epochs: float) -> list[str]:
        return [f"updates grow evenly to these limits until epoch {self.epochs}"]
