"""Copies of a GPU's tensors in the host's memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from nmt_cli.device import HostCopies


class PinnedCopies(HostCopies):
    """Copies in pinned memory, which is kept for the next copies."""

    device_type = "cuda"  # of the tensors whose copies are pinned

    def __init__(self) -> None:
        self._buffers: dict[tuple[int, str], Tensor] = {}

    def start(
        self, *groups: Mapping[str, Tensor]
    ) -> tuple[list[dict[str, Tensor]], Callable[[], None]]:
        """See `HostCopies`.

        They are made on the current stream, before the next update: a CUDA graph could not wait for
        another stream.
        """
        copies = []
        for number, group in enumerate(groups):
            copy = {}
            for name, tensor in group.items():
                copy[name] = self._start_one((number, name), tensor)
            copies.append(copy)
        done = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
        done.record()
        return copies, done.synchronize

    def _start_one(self, key: tuple[int, str], tensor: Tensor) -> Tensor:
        if tensor.device.type != self.device_type:  # such as a step that Adam counts on the host
            return tensor.clone()
        if key not in self._buffers:
            self._buffers[key] = torch.empty_like(tensor, device="cpu", pin_memory=tensor.is_cuda)
        return self._buffers[key].copy_(tensor, non_blocking=True)
