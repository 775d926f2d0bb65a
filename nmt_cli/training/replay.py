"""Computations of an update as CUDA graphs: the host launches one graph in place of a thousand kernels."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from nmt_cli.device import is_out_of_memory
from nmt_cli.errors import TrainingError
from nmt_cli.interfaces import Batch
from nmt_cli.packing import mapped

WARM_UPS = 2  # calls before the capture, in which code is compiled, and libraries reserve their memory


class Replay:
    """A function, captured once for each of its inputs' shapes, and replayed from then on.

    A graph has the addresses of its tensors. So the inputs are copied to where those of the capture are, and all else
    that the function reads or changes has to stay where it is: the weights, their gradients and the optimizer's state.

    Args:
        function: of tensors and batches; it must not wait for the GPU.
        neutral: values of the last input with which a call changes nothing: captures have it.
    """

    def __init__(self, function: Callable[..., Any], neutral: Tensor, device: torch.device) -> None:
        self.function, self.neutral, self.device = function, neutral, device
        self.forget()

    def forget(self) -> None:
        """Free the memory of all graphs."""
        self.captured: dict[tuple[torch.Size, ...], tuple[list[Tensor], Any, Any]] = {}
        self.pool: Any = None  # the memory that all graphs share, as none runs beside another

    def __call__(self, *inputs: Tensor | Batch) -> Any:
        """Return what the function returns; the next call may overwrite it."""
        values = [tensor for each in inputs for tensor in tensors_of(each)]
        shapes = tuple(value.shape for value in values)
        if shapes not in self.captured:
            self.captured[shapes] = self.capture(inputs)
        static, graph, result = self.captured[shapes]
        torch._foreach_copy_(static, values, non_blocking=True)
        graph.replay()  # it begins with the generator's seed as it is now, so `torch.manual_seed` decides on dropout
        return result

    def capture(self, inputs: tuple[Tensor | Batch, ...]) -> tuple[list[Tensor], Any, Any]:
        """Return the tensors to which inputs of these shapes are copied, the graph, and its result."""
        copies = [changed(each, lambda tensor: tensor.to(self.device, copy=True)) for each in inputs]
        static = [tensor for each in copies for tensor in tensors_of(each)]
        static[-1].copy_(self.neutral)
        # Else the first replay would draw other dropout than in a resumed run, which may capture at another update.
        with torch.random.fork_rng([self.device] if self.device.type == "cuda" else []):
            graph, result = record(lambda: self.function(*copies), self.pool)
        self.pool = graph.pool()
        return static, graph, result


def record(work: Callable[[], Any], pool: Any) -> tuple[Any, Any]:
    """Return a CUDA graph of `work`, with memory of `pool`, and the result, which a replay computes anew.

    Raises:
        TrainingError: `work` cannot be captured.
    """
    stream = side_stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(WARM_UPS):
            work()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    try:
        # The threads that make batches and write checkpoints may use the GPU meanwhile.
        with torch.cuda.graph(graph, pool, stream, capture_error_mode="thread_local"):
            result = work()
    except RuntimeError as error:
        if is_out_of_memory(error):
            raise
        reason = str(error).strip().splitlines()[0]
        raise TrainingError(f"no CUDA graph can be made of an update: {reason}; give --no-cuda-graphs") from error
    return graph, result


@functools.cache
def side_stream() -> torch.cuda.Stream:
    """Return the stream of all captures, which cannot be the default one; cuBLAS has a work space for each stream."""
    return torch.cuda.Stream()  # type: ignore[no-untyped-call]


def changed(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    return change(value) if isinstance(value, Tensor) else mapped(value, change)


def tensors_of(value: Tensor | Batch) -> list[Tensor]:
    found: list[Tensor] = []

    def keep(tensor: Tensor) -> Tensor:
        found.append(tensor)
        return tensor

    changed(value, keep)
    return found
