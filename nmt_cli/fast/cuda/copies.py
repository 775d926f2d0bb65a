"""Copies between the memory of the host and of a GPU, for which neither waits."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

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


class OnHost:
    """Copies of tensors in the host's memory, which are made while the GPU goes on."""

    def __init__(self, *tensors: Tensor) -> None:
        self.copies = [tensor.to("cpu", non_blocking=True, copy=True) for tensor in tensors]
        self.done = event(tensors[0].device)

    def wait(self) -> list[Tensor]:
        """Return the copies."""
        if self.done is not None:
            self.done.synchronize()
        return self.copies


def event(device: torch.device) -> Any:
    """Return an event after all that the current stream has to do, or None without streams."""
    return torch.cuda.current_stream().record_event() if device.type == "cuda" else None


@functools.cache
def side_stream(device: torch.device) -> Any:
    """Return a GPU's only stream beside a search: each keeps memory of its own."""
    if device.type != "cuda":
        return None
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


def on_device(tensor: Tensor, device: torch.device) -> Tensor:
    """Return a copy of a tensor of the host, for which a GPU does not wait."""
    return (tensor.pin_memory() if device.type == "cuda" else tensor).to(device, non_blocking=True)
