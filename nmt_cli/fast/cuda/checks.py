"""The kernels that fit a model, each checked on a few rows against PyTorch's lines.

A kernel that cannot be compiled, or computes something else on this GPU, stops no training.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, TypeAlias

import torch
from torch import Tensor

from nmt_cli.criteria.label_smoothed_cross_entropy import LabelSmoothedCrossEntropy
from nmt_cli.device import UNFIT, autocast, product_dtype
from nmt_cli.fast.cuda import layers, operators
from nmt_cli.fast.cuda.bins import WIDTH
from nmt_cli.fast.layout import layout_of
from nmt_cli.fast.loss import to_gradient
from nmt_cli.fast.packing import Bins
from nmt_cli.layers.attention import MultiHeadAttention
from nmt_cli.layers.sublayer import FeedForward, Residual

Pairs: TypeAlias = Iterable[tuple[Tensor, Tensor]]
"""What a kernel has computed, and what PyTorch has."""

TOLERANCE = 0.05  # relative: bfloat16 has 0.004
LOSS = "loss"


def kernels(model: Any, criterion: Any, device: torch.device, precision: str) -> dict[str, str]:
    """See `Plain.check_kernels`."""
    parts: dict[str, str] = {}
    for part, (kind, fits, check) in PARTS.items():
        modules = [module for module in model.modules() if type(module).forward is kind.forward]
        fitting = [module for module in modules if fits(module)]
        if kind is MultiHeadAttention and precision == "float32" and device.type == "cuda":
            fitting = []  # its tiles would be too large
        if fitting:
            pairs = chain.from_iterable(check(module, device) for module in fitting)
            parts[part] = failure(pairs, device, precision)
        elif modules:
            parts[part] = UNFIT
    if isinstance(criterion, LabelSmoothedCrossEntropy):
        parts[LOSS] = failure(check_loss(device), device, precision)
    return parts


def failure(pairs: Pairs, device: torch.device, precision: str) -> str:
    """Return why the kernels that compute `pairs` cannot be used, or ""."""
    devices = []
    if device.type == "cuda":
        if not torch.cuda.is_bf16_supported(including_emulation=False):
            return "the GPU has no bfloat16"
        devices = [device]
    try:
        with torch.random.fork_rng(devices), autocast(device, precision):
            for ours, expected in pairs:
                # Not a quotient: initial weights may be 0. Nor >, as all numbers may be NaN.
                if not (ours - expected).norm() <= TOLERANCE * expected.norm():
                    return "its results differ from PyTorch's"
    except Exception as error:  # of Triton, the compiler, the driver or the GPU
        return f"{type(error).__name__}: {error}".partition("\n")[0]
    return ""


def check_attention(attention: MultiHeadAttention, device: torch.device) -> Pairs:
    x, context = (random_rows(attention.w_q.in_features, device) for _ in range(2))
    queries = keys = three_sentences(50, device)
    inputs = [x]
    if attention.cross:
        keys = three_sentences(60, device)
        inputs = [x, context]
    layout = layout_of(queries, keys, causal=not attention.cross)
    ours = layers.multi_head_attention(attention, x, context, layout)
    return compared(ours, MultiHeadAttention.forward(attention, x, context, layout), inputs)


def check_residual(residual: Residual, device: torch.device) -> Pairs:
    """PyTorch has the mask of the kernel that computes the gradient."""
    norm = residual.norm
    x, y = (random_rows(norm.normalized_shape[0], device) for _ in range(2))
    ours = layers.residual(residual, x, lambda _: y)
    (gradient,) = torch.autograd.grad(ours, y, torch.randn_like(ours), retain_graph=True)
    mask = (gradient != 0) / (1 - residual.dropout.rate)
    return compared(ours, norm(x + y * mask), [x, y, norm.weight, norm.bias])


def check_relu(feed_forward: FeedForward, device: torch.device) -> Pairs:
    x = random_rows(feed_forward.inner.in_features, device)
    torch.manual_seed(1)  # both have one mask of dropout
    ours = layers.feed_forward_by_kernels(feed_forward, x)
    torch.manual_seed(1)
    return compared(ours, layers.feed_forward(feed_forward, x), [x, feed_forward.inner.bias])


def check_loss(device: torch.device) -> Pairs:
    targets = torch.arange(8, device=device)
    logits = torch.randn(8, 10_000, device=device)  # more than one block
    logits = logits.to(product_dtype(logits))
    expected = logits.clone()
    ours = operators.cross_entropy(logits, targets, 0.1)
    yield from zip(ours, to_gradient(expected, targets, 0.1), strict=True)
    yield logits, expected


PARTS: dict[str, Any] = {
    "attention": (MultiHeadAttention, layers.in_tiles, check_attention),
    "residual connections": (Residual, layers.in_kernel, check_residual),
    "ReLU": (FeedForward, layers.is_relu_of_sum, check_relu),
}
"""The class of each part's modules, which of them have a kernel, and its check."""


def compared(ours: Tensor, expected: Tensor, inputs: list[Tensor]) -> Iterator[tuple[Any, Any]]:
    """Yield both outputs, and both gradients of each of the `inputs`."""
    yield ours, expected
    inputs = [tensor for tensor in inputs if tensor.requires_grad]  # weights may be frozen
    gradient = torch.randn_like(expected)
    our_gradients = torch.autograd.grad(ours, inputs, gradient.to(ours.dtype))
    yield from zip(our_gradients, torch.autograd.grad(expected, inputs, gradient), strict=True)


def random_rows(width: int, device: torch.device) -> Tensor:
    return torch.randn(WIDTH, width, device=device, requires_grad=True)


def three_sentences(length: int, device: torch.device) -> Bins:
    """Return a bin with two sentences of this length and a shorter one."""
    numbers = torch.arange(WIDTH, device=device) // length + 1
    return Bins(numbers[None], numbers)
