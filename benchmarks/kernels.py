"""Speed of single kernels: matrix products and attention at the shapes of a training step."""

from __future__ import annotations

import inspect
import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.peers.serve import Size
from nmt_cli.fast.cuda.bins import binned
from nmt_cli.fast.packing import Bins

ROWS_OF_LOGITS = 4096
WARM_UP, REPEATS = 3, 10


def seconds_of(function: Callable[[], Any], device: torch.device) -> float:
    """Return the mean time of a call, after a few to warm up."""
    for _ in range(WARM_UP):
        function()
    synchronise(device)
    began = time.perf_counter()
    for _ in range(REPEATS):
        function()
    synchronise(device)
    return (time.perf_counter() - began) / REPEATS


def synchronise(device: torch.device) -> None:
    """Wait for the device."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def large_product(size: int, device: torch.device) -> float:
    """Return the operations a second of a product of two square matrices in bfloat16."""
    left, right = (torch.randn(size, size, device=device, dtype=torch.bfloat16) for _ in range(2))
    return 2.0 * size**3 / seconds_of(partial(torch.mm, left, right), device)


def products(
    models: Mapping[str, Size], tokens: int, device: torch.device
) -> Iterator[tuple[str, list[float]]]:
    """Yield each product's name and its operations a second, forwards and for both gradients.

    The products are in bfloat16.
    """
    for name, size in models.items():
        width, inner = size.width, size.inner
        shapes = [
            (tokens, width, 3 * width),
            (tokens, width, width),
            (tokens, width, inner),
            (tokens, inner, width),
        ]
        for m, k, n in [*shapes, (min(tokens, ROWS_OF_LOGITS), width, size.vocabulary)]:
            left, weight, gradient = (
                torch.randn(shape, device=device, dtype=torch.bfloat16)
                for shape in ((m, k), (n, k), (m, n))
            )
            rates = [
                2.0 * m * k * n / seconds_of(partial(torch.mm, *pair), device)
                for pair in ((left, weight.t()), (gradient, weight), (gradient.t(), left))
            ]
            yield f"{name} {m} x {k} x {n}", rates


def attention(
    size: Size, lengths: Sequence[int], tokens: int, device: torch.device
) -> Iterator[tuple[str, float | str]]:
    """Yield the seconds of a causal self-attention over a batch, or the reason why there are none.

    The seconds are of a pass forwards and backwards.

    Args:
        lengths: of sentences; those that fit into `tokens` are taken.
    """
    ends = [end for end in itertools.accumulate(lengths) if end <= tokens]
    taken = list(lengths[: len(ends)])
    kernels: dict[str, Callable[..., Callable[[], Tensor]]] = {
        "bins": bins,
        "variable length": variable_length,
        "scaled_dot_product_attention, padded": padded,
    }
    for name, kernel in kernels.items():
        try:
            yield name, seconds_of(kernel(size, taken, device), device)
        except Exception as error:  # every release of PyTorch has other kernels, for other devices
            reason = str(error).split("\n")[0] or type(error).__name__
            yield name, f"not available: {reason}"


def heads(size: Size, *shape: int, device: torch.device) -> Tensor:
    """Return random bfloat16 heads of the given shape, the width of a head last."""
    return torch.randn(
        *shape, size.width // size.heads, device=device, dtype=torch.bfloat16, requires_grad=True
    )


def forwards_and_backwards(attend: Callable[..., Tensor], *inputs: Tensor) -> Callable[[], Tensor]:
    """Return a function that calls `attend` and computes the gradients of its inputs."""
    gradient = torch.randn_like(attend(*inputs))

    def both() -> Tensor:
        output = attend(*inputs)
        torch.autograd.grad(output, inputs, gradient)
        return output

    return both


def variable_length(
    size: Size, lengths: Sequence[int], device: torch.device
) -> Callable[[], Tensor]:
    """Return attention by PyTorch's kernel for packed sentences: [tokens, heads, head's width]."""
    from torch.nn.attention import varlen

    offsets = torch.tensor([0, *itertools.accumulate(lengths)], device=device, dtype=torch.int32)
    query, key, value = (heads(size, sum(lengths), size.heads, device=device) for _ in range(3))
    attend: Any = varlen.varlen_attn
    recent = "window_size" in inspect.signature(attend).parameters
    causal: dict[str, Any] = {"window_size": (-1, 0)} if recent else {"is_causal": True}
    ends = (offsets, offsets, max(lengths), max(lengths))
    return forwards_and_backwards(
        lambda q, k, v: attend(q, k, v, *ends, **causal), query, key, value
    )


def bins(size: Size, lengths: Sequence[int], device: torch.device) -> Callable[[], Tensor]:
    """Return attention as in training: whole sentences in equal rows, kept apart by a mask."""
    batch = binned(*[(np.zeros(sum(lengths) - len(lengths), np.uint32), np.array(lengths) - 1)] * 2)
    assert isinstance(batch.sources, Bins)
    of = batch.sources.sentences.to(device)
    allowed = ((of[:, None, :, None] == of[:, None, None]) | (of[:, None, :, None] == 0)).tril()
    inputs = [heads(size, len(of), size.heads, of.size(1), device=device) for _ in range(3)]
    return forwards_and_backwards(
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, allowed), *inputs
    )


def padded(size: Size, lengths: Sequence[int], device: torch.device) -> Callable[[], Tensor]:
    """Return attention over groups of similar lengths, padded and causal.

    Right padding needs no other mask.
    """
    ordered = sorted(lengths)
    groups = [ordered[i : i + 128] for i in range(0, len(ordered), 128)]
    batches = [
        [heads(size, len(g), size.heads, g[-1], device=device) for _ in range(3)] for g in groups
    ]
    computations = [
        forwards_and_backwards(
            lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), *inputs
        )
        for inputs in batches
    ]
    return lambda: [function() for function in computations][-1]


def kernel_times(profile: Any, steps: int = 1, count: int = 30) -> list[tuple[str, float, float]]:
    """Return the GPU kernels that take most time: name, launches and milliseconds of a step."""
    kernels = [event for event in profile.key_averages() if event.device_type.name == "CUDA"]
    kernels.sort(key=lambda event: -event.self_device_time_total)
    return [
        (event.key, event.count / steps, event.self_device_time_total / 1e3 / steps)
        for event in kernels[:count]
    ]
