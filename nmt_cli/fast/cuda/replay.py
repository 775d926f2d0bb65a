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
    """CUDA graphs, and the tensors at the addresses that they read and write."""

    graphs: Sequence[Any]
    inputs: list[Tensor]
    result: Any


class Replay:
    """Functions, captured once for each of its inputs' shapes, and replayed from then on.

    A graph has the addresses of its tensors. So inputs are copied to the inputs of the capture, and
    all else that the functions read or change has to stay where it is: the weights, their
    gradients and the optimizer's state.

    Args:
        functions: one of dataclasses and a tensor, and those without inputs and results that go
            on after it. They must not wait for the GPU.
        neutral: values of the tensor with which a call changes nothing. Captures have them.
    """

    def __init__(
        self, functions: Sequence[Callable[..., Any]], neutral: Tensor, device: torch.device
    ) -> None:
        self.functions = functions
        self.neutral = neutral
        self.device = device
        self.captured: dict[Any, Captured] = {}  # by the shapes of the inputs
        self.following: Sequence[Any] = ()  # graphs

    def __call__(self, *inputs: Any) -> Any:
        """Return what the first function returns. The next call may overwrite it."""
        values = tensors_of(inputs)
        shapes = tuple(value.shape for value in values)
        if shapes not in self.captured:
            self.captured[shapes] = self._capture(inputs)
        captured = self.captured[shapes]
        torch._foreach_copy_(captured.inputs, values, non_blocking=True)
        # It begins with the generator's seed as it is now, so `torch.manual_seed` decides on
        # dropout.
        first, *self.following = captured.graphs
        first.replay()
        return captured.result

    def go_on(self) -> None:
        """Call the other functions."""
        for graph in self.following:
            graph.replay()

    def _capture(self, inputs: Sequence[Any]) -> Captured:
        """Capture a call with inputs of these shapes, which changes nothing."""

        def copied(tensor: Tensor) -> Tensor:
            return tensor.to(self.device, copy=True)

        copies = [map_tensors(structure, copied) for structure in inputs]
        copies[-1].copy_(self.neutral)
        pool = None
        for captured in self.captured.values():
            pool = captured.graphs[0].pool()  # all share one: no graph runs beside another
            break
        # Else the first replay would draw other dropout than in a resumed run, which captures at
        # another update.
        devices = [self.device] if self.device.type == "cuda" else []
        with torch.random.fork_rng(devices):
            first, *others = self.functions
            graphs, results = record([lambda: first(*copies), *others], pool)
        return Captured(graphs, tensors_of(copies), results[0])


def tensors_of(inputs: Sequence[Any]) -> list[Tensor]:
    """Return the tensors in dataclasses, in an order that is the same for the same classes."""
    tensors: list[Tensor] = []

    def collect(tensor: Tensor) -> Tensor:
        tensors.append(tensor)
        return tensor

    for structure in inputs:
        map_tensors(structure, collect)
    return tensors


def record(works: Sequence[Callable[[], Any]], pool: Any) -> tuple[list[Any], list[Any]]:
    """Return CUDA graphs of `works`, in memory of `pool`, and the results that replays overwrite.

    The works follow one another, and so must the graphs.
    """
    pool = pool or torch.cuda.graph_pool_handle()
    # The threads that make batches and write checkpoints may use the GPU meanwhile.
    captures = [
        torch.cuda.graph(torch.cuda.CUDAGraph(), pool, capture_error_mode="thread_local")
        for _ in works
    ]
    # First without: code is compiled, and libraries reserve their memory, on the stream of the
    # captures.
    with torch.cuda.stream(captures[0].capture_stream):
        torch.cuda.synchronize()
        for work in 2 * [*works]:
            work()
    results = []
    for capture, work in zip(captures, works, strict=True):
        with capture:
            results.append(work())
    return [capture.cuda_graph for capture in captures], results
