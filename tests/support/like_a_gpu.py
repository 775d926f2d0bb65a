"""Computing on a CPU as on a GPU: bins, and a GPU's layers and loss, without a compiler."""

from __future__ import annotations

from typing import Any

import pytest

from nmt_cli import device
from nmt_cli.device import HostCopies, Load
from nmt_cli.fast import rows
from nmt_cli.fast.cpu.device import Fast as OnCPU
from nmt_cli.fast.cuda.bins import binned
from nmt_cli.fast.cuda.device import Fast as OnGPU
from nmt_cli.training.gradients import Gradients


class Fast(OnGPU):
    """What of `fast/cuda` needs no GPU."""

    sizes = OnCPU.sizes
    tries_memory = False

    def precision(self, model: Any, deterministic: bool) -> str:
        """float32."""
        return "float32"

    def compile(self, model: Any, criterion: Any, wanted: bool | None) -> None:
        """Nothing."""

    def loader(self, load: Load, model: Any, bins: bool) -> Load:
        """Without pinned memory."""
        if bins:
            return lambda corpus, indices: binned(
                corpus.ids("source", indices), corpus.ids("target", indices)
            )
        return lambda corpus, indices: rows.row_batch(load(corpus, indices), model)

    def gradients(self, plain: Gradients, replay: bool) -> Gradients:
        """Without graphs."""
        return plain

    def host_copies(self) -> HostCopies:
        """Without pinned memory."""
        return HostCopies()


def like_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on, a CPU computes as a GPU does."""
    monkeypatch.setitem(device.ROOMS, "cpu", "like_a_gpu")
