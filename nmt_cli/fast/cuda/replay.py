"""Computations of an update as CUDA graphs: the host launches one graph in place of a thousand
kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from nmt_cli.fast.packing import map_tensors


class Replay:
    """A function, captured once for each of its inputs' shapes, and replayed from then on.

    A graph has the addresses of its tensors. So the inputs are copied to where those of the capture
    are, and all else that the function reads or changes has to stay where it is: the weights, their
    gradients and the optimizer's state.

    Args:
        function: of dataclasses and a tensor; it must not wait for the GPU.
        neutral: values of the tensor with which a call changes nothing: captures have it.
    """

    def __init__(self, function: Callable[..., Any], neutral: Tensor, device: torch.device) -> None:
        self.function, self.neutral, self.device = function, neutral, device
        # By shapes: where inputs are, graph and result.
        self.captured: dict[Any, tuple[list[Tensor], Any, Any]] = {}

    def __call__(self, *inputs: Any) -> Any:
        """Return what the function returns; the next call may overwrite it."""
        values = tensors_of(inputs)
        shapes = tuple(value.shape for value in values)
        if shapes not in self.captured:
            copies = [
                map_tensors(each, lambda tensor: tensor.to(self.device, copy=True))
                for each in inputs
            ]
            copies[-1].copy_(self.neutral)
            # None runs beside another.
            pool = next((graph.pool() for _, graph, _ in self.captured.values()), None)
            # Else the first replay would draw other dropout than in a resumed run, which captures
            # at another update.
            with torch.random.fork_rng([self.device] if self.device.type == "cuda" else []):
                graph, result = record(lambda: self.function(*copies), pool)
            self.captured[shapes] = tensors_of(copies), graph, result
        places, graph, result = self.captured[shapes]
        torch._foreach_copy_(places, values, non_blocking=True)
        # It begins with the generator's seed as it is now, so `torch.manual_seed` decides on
        # dropout.
        graph.replay()
        return result


def tensors_of(inputs: Sequence[Any]) -> list[Tensor]:
    found: list[Tensor] = []
    for each in inputs:
        map_tensors(each, lambda tensor: found.append(tensor) or tensor)  # type: ignore[func-returns-value]
    return found


def record(work: Callable[[], Any], pool: Any) -> tuple[Any, Any]:
    """Return a CUDA graph of `work`, with memory of `pool`, and the result, which a replay computes
    anew.
    """
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
