"""Computations of an update as CUDA graphs: one launch in place of a thousand kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from nmt_cli.fast.packing import map_tensors


@dataclass(frozen=True)
class Captured:
    """A CUDA graph, and the tensors at the addresses that it reads and writes."""

    graph: Any
    inputs: list[Tensor]
    result: Any


class Replay:
    """A function, captured once for each of its inputs' shapes, and replayed from then on.

    A graph has the addresses of its tensors. So inputs are copied to the inputs of the capture, and
    all else that the function reads or changes has to stay where it is: the weights, their
    gradients and the optimizer's state.

    Args:
        function: of dataclasses and a tensor. It must not wait for the GPU.
        neutral: values of the tensor with which a call changes nothing. Captures have them.
    """

    def __init__(self, function: Callable[..., Any], neutral: Tensor, device: torch.device) -> None:
        self.function = function
        self.neutral = neutral
        self.device = device
        self.captured: dict[Any, Captured] = {}  # by the shapes of the inputs

    def __call__(self, *inputs: Any) -> Any:
        """Return what the function returns. The next call may overwrite it."""
        values = tensors_of(inputs)
        shapes = tuple(value.shape for value in values)
        if shapes not in self.captured:
            self.captured[shapes] = self._capture(inputs)
        captured = self.captured[shapes]
        torch._foreach_copy_(captured.inputs, values, non_blocking=True)
        # It begins with the generator's seed as it is now, so `torch.manual_seed` decides on
        # dropout.
        captured.graph.replay()
        return captured.result

    def _capture(self, inputs: Sequence[Any]) -> Captured:
        """Capture a call with inputs of these shapes, which changes nothing."""

        def copied(tensor: Tensor) -> Tensor:
            return tensor.to(self.device, copy=True)

        copies = [map_tensors(structure, copied) for structure in inputs]
        copies[-1].copy_(self.neutral)
        pool = None
        for captured in self.captured.values():
            pool = captured.graph.pool()  # all share one: no graph runs beside another
            break
        # Else the first replay would draw other dropout than in a resumed run, which captures at
        # another update.
        devices = [self.device] if self.device.type == "cuda" else []
        with torch.random.fork_rng(devices):
            graph, result = record(lambda: self.function(*copies), pool)
        return Captured(graph, tensors_of(copies), result)


def tensors_of(inputs: Sequence[Any]) -> list[Tensor]:
    """Return the tensors in dataclasses, in an order that is the same for the same classes."""
    tensors: list[Tensor] = []

    def collect(tensor: Tensor) -> Tensor:
        tensors.append(tensor)
        return tensor

    for structure in inputs:
        map_tensors(structure, collect)
    return tensors


def record(work: Callable[[], Any], pool: Any) -> tuple[Any, Any]:
    """Return a CUDA graph of `work`, in memory of `pool`, and the result that replays overwrite."""
    graph = torch.cuda.CUDAGraph()
    # The threads that make batches and write checkpoints may use the GPU meanwhile.
    capturing = torch.cuda.graph(graph, pool, capture_error_mode="thread_local")
    # First without: code is compiled, and libraries reserve their memory, on the stream of the
    # capture.
    with torch.cuda.stream(capturing.capture_stream):
        torch.cuda.synchronize()
        _ = work(), work()
    with capturing:
        return graph, work()
