"""Kernels are compared with PyTorch's lines on a few rows before they are used.

A kernel that cannot be compiled, or computes something else on this GPU, stops nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any, NamedTuple, TypeAlias

import torch
import torch.nn.functional as F
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
from nmt_cli.streams import warn

Pairs: TypeAlias = Iterable[tuple[Tensor, Tensor]]
"""What a kernel has computed, and what PyTorch has."""

TOLERANCE = 0.05  # relative: bfloat16 has 0.004
EXACT = 1e-4  # in float32
LOSS = "loss"


def failure(
    pairs: Pairs, device: torch.device, precision: str = "float32", tolerance: float = TOLERANCE
) -> str:
    """Return why the kernels that compute `pairs` cannot be used, or ""."""
    devices = [device] if device.type == "cuda" else []
    try:
        with torch.random.fork_rng(devices), autocast(device, precision):
            torch.manual_seed(1)  # a run that goes on has the same answer
            for ours, expected in pairs:
                difference = ours.float() - expected.float()
                # Not a quotient: initial weights may be 0. Nor >, as all numbers may be NaN.
                if not difference.norm() <= tolerance * expected.float().norm():
                    return "its results differ from PyTorch's"
    except Exception as error:  # of Triton, the compiler, the driver or the GPU
        return f"{type(error).__name__}: {error}".partition("\n")[0]
    return ""


@functools.cache
def kernels_of_step(device: torch.device, dtype: torch.dtype, *sizes: int) -> Any:
    """Return `step_kernels`, or None if its kernel is of no use here.

    Args:
        sizes: W, d_k and d_v for `attend`, or none for `best_tokens`.
    """
    if sizes:
        W, *widths = sizes
        if layers.ROWS < W or not layers.HEADS.issuperset(widths):
            return None
    tolerance = TOLERANCE if sizes and dtype != torch.float32 else EXACT
    trouble = failure(check_step(device, dtype, *sizes), device, tolerance=tolerance)
    if trouble:
        warn(f"decoding takes longer, without a kernel: {trouble}")
        return None
    from nmt_cli.fast.cuda import step_kernels

    return step_kernels


def check_step(device: torch.device, dtype: torch.dtype, *sizes: int) -> Pairs:
    """Compute `attend` with these sizes W, d_k and d_v, or `best_tokens`."""
    from nmt_cli.fast.cuda.step_kernels import attend, best_tokens  # needs Triton

    draw = functools.partial(torch.randn, dtype=dtype, device=device)
    if not sizes:
        logits = 4 * draw(4, 5000)  # more than one block
        forbidden = torch.ones(2, dtype=torch.long, device=device)  # the first token
        scores, tokens = best_tokens(logits, 5, forbidden, 5000)
        log_probabilities = logits.float().log_softmax(1)
        expected = log_probabilities[:, 1:].topk(5).values
        yield scores, expected
        yield log_probabilities.gather(1, tokens), expected
        return
    W, d_k, d_v = sizes
    query, key, value = draw(W, 1, d_k), draw(W, 1, d_k), draw(W, 1, d_v)
    cache = draw(1, 1, W + 64, d_k + d_v)
    is_hidden = draw(1, W, W + 64) < -1
    mask = torch.zeros_like(is_hidden, dtype=dtype).masked_fill_(is_hidden, -torch.inf)
    newest = (key, value, torch.zeros(W, 1, dtype=torch.long, device=device))
    keys, values = cache.tensor_split((d_k,), 3)
    ours = attend(query, keys, values, mask, newest)[None, :, 0]
    keys[0, 0, :W], values[0, 0, :W] = key[:, 0], value[:, 0]
    heads = (query[None, :, 0].float(), keys[0].float(), values[0].float())
    yield ours, F.scaled_dot_product_attention(*heads, mask.float())


def kernels_of_update(
    model: Any, criterion: Any, device: torch.device, precision: str
) -> dict[str, str]:
    """See `Plain.check_kernels`."""
    is_gpu = device.type == "cuda"
    if is_gpu and not torch.cuda.is_bf16_supported(including_emulation=False):
        return dict.fromkeys([*PARTS, LOSS], UNFIT)
    troubles: dict[str, str] = {}
    for name, part in PARTS.items():
        modules = [module for module in model.modules() if type(module).forward is part.method]
        fitting = [module for module in modules if part.fits(module)]
        if name == "attention" and precision == "float32" and is_gpu:
            fitting = []  # its tiles would be too large
        if fitting:
            pairs = chain.from_iterable(part.check(module, device) for module in fitting)
            troubles[name] = failure(pairs, device, precision)
        elif modules:
            troubles[name] = UNFIT
    if isinstance(criterion, LabelSmoothedCrossEntropy):
        troubles[LOSS] = failure(check_loss(device), device, precision)
    return troubles


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
    """PyTorch has the mask of the kernel that computes the gradient, whose mean is 1."""
    norm = residual.norm
    x, y = (random_rows(norm.normalized_shape[0], device) for _ in range(2))
    ours = layers.residual(residual, x, lambda _: y)
    (gradient,) = torch.autograd.grad(ours, y, torch.randn_like(ours), retain_graph=True)
    mask = (gradient != 0) / (1 - residual.dropout.rate)
    yield mask.mean(), torch.ones_like(mask).mean()
    yield from compared(ours, norm(x + y * mask), [x, y, norm.weight, norm.bias])


def check_relu(feed_forward: FeedForward, device: torch.device) -> Pairs:
    x = random_rows(feed_forward.inner.in_features, device)
    torch.manual_seed(1)  # both have one mask of dropout
    ours = layers.feed_forward_by_kernel(feed_forward, x)
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


class Part(NamedTuple):
    """A part of an update that has a kernel."""

    method: Any  # of the core
    by_kernel: Any  # what takes its place
    fits: Callable[[Any], bool]  # whether a module has a kernel
    check: Callable[[Any, torch.device], Pairs]


PARTS = {
    "attention": Part(
        MultiHeadAttention.forward, layers.multi_head_attention, layers.in_tiles, check_attention
    ),
    "residual connections": Part(
        Residual.forward, layers.residual, layers.in_kernel, check_residual
    ),
    "ReLU": Part(
        FeedForward.forward, layers.feed_forward_by_kernel, layers.is_relu_of_sum, check_relu
    ),
}


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
