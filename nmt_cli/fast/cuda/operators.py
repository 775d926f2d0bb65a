"""The kernels as operators of PyTorch with gradients, which compiled code may call.

A compiler knows the shapes by `register_fake`, where `len` would make code of its own for each
number of rows.

Letters: N rows, H heads, W width of a bin, C columns of a row, V vocabulary.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor


class Launch(NamedTuple):
    """The launch of a kernel. `python -m benchmarks.gpu --part tune` prints the fastest ones."""

    warps: int
    rows: int = 1  # of a tile
    programs: int = 1 << 20  # at most
    stages: int = 1  # of loops with products


LAUNCHES = {
    "attention": Launch(4, rows=64),
    "attention_backward": Launch(8),
    "residual_norm": Launch(4, rows=4),
    "residual_norm_backward": Launch(4, programs=1056),
    "relu_backward": Launch(8, programs=264),
    "cross_entropy": Launch(16),
}
LOGITS = 8192  # in a block of the loss


def _launch(name: str, tiles: int, *arguments: Any, **constants: Any) -> None:
    """Launch a kernel. Their module needs Triton, which PyTorch for CPUs lacks."""
    from nmt_cli.fast.cuda import kernels

    chosen = LAUNCHES[name]
    grid = (min(chosen.programs, tiles),)
    getattr(kernels, name)[grid](
        *arguments, tiles, **constants, num_stages=chosen.stages, num_warps=chosen.warps
    )


def _launch_rows(name: str, rows: Tensor, *arguments: Any, **constants: Any) -> None:
    """Launch a kernel whose tiles are some of the `rows`."""
    M = LAUNCHES[name].rows
    _launch(name, -(-len(rows) // M), *arguments, len(rows), M=M, **constants)


def _sums(name: str, rows: Tensor, *shape: int) -> Tensor:
    """Return room for sums over the rows of each program: [programs, *shape]."""
    chosen = LAUNCHES[name]
    programs = min(chosen.programs, -(-len(rows) // chosen.rows))
    return torch.empty(programs, *shape, device=rows.device)


@torch.library.custom_op("nmt::attention", mutates_args=())
def attention(
    packed: list[Tensor],
    query_sentences: Tensor,
    key_sentences: Tensor,
    heads: int,
    d_k: int,
    causal: bool,
) -> Tensor:
    """Attention in bins: [N, H * d_k].

    Args:
        packed: the product [N, 3 * H * d_k] of queries, keys and values, or two products, one of
            the queries, and one of keys and values.
        query_sentences, key_sentences: [bins, W] of `Bins`.
    """
    query, key, value = _parts(packed, heads * d_k)
    output = torch.empty(query.shape, dtype=query.dtype, device=query.device)
    tensors = (query, key, value, output, query_sentences, key_sentences)
    _launch_attention("attention", tensors, query, key, d_k, causal)
    return output


@torch.library.custom_op("nmt::attention_backward", mutates_args=())
def attention_backward(
    gradient: Tensor,
    packed: list[Tensor],
    query_sentences: Tensor,
    key_sentences: Tensor,
    heads: int,
    d_k: int,
    causal: bool,
) -> list[Tensor]:
    """The gradients of `packed`."""
    query, key, value = _parts(packed, heads * d_k)
    gradients = [torch.empty_like(product) for product in packed]
    tensors = (gradient.contiguous(), query, key, value, *_parts(gradients, heads * d_k))
    sentences = (query_sentences, key_sentences)
    _launch_attention("attention_backward", (*tensors, *sentences), query, key, d_k, causal)
    return gradients


def _parts(packed: list[Tensor], width: int) -> list[Tensor]:
    """Queries, keys and values, or their gradients."""
    return [part for product in packed for part in torch.split(product, width, 1)]


def _launch_attention(
    name: str, tensors: tuple[Tensor, ...], query: Tensor, key: Tensor, d_k: int, causal: bool
) -> None:
    bins, W = tensors[-1].shape
    heads = query.size(1) // d_k
    numbers = (query.stride(0), key.stride(0), heads, d_k**-0.5)
    constants = {"CAUSAL": causal, "W": W, "D": d_k}
    if name == "attention":
        M = constants["M"] = min(LAUNCHES[name].rows, W)
        bins *= W // M
    _launch(name, bins * heads, *tensors, *numbers, **constants)


@attention.register_fake
def _(
    packed: list[Tensor], queries: Tensor, keys: Tensor, heads: int, d_k: int, causal: bool
) -> Tensor:
    return packed[0].new_empty(packed[0].size(0), heads * d_k)


@attention_backward.register_fake
def _(gradient: Tensor, packed: list[Tensor], *others: Any) -> list[Tensor]:
    return [torch.empty_like(product) for product in packed]


def _save_attention(ctx: Any, inputs: Any, output: Any) -> None:
    packed, query_sentences, key_sentences, *ctx.numbers = inputs
    ctx.save_for_backward(*packed, query_sentences, key_sentences)


def _attention_gradients(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
    *packed, query_sentences, key_sentences = ctx.saved_tensors
    sentences = (query_sentences, key_sentences)
    return attention_backward(gradient, packed, *sentences, *ctx.numbers), *5 * [None]


attention.register_autograd(_attention_gradients, setup_context=_save_attention)


@torch.library.custom_op(
    "nmt::residual_norm", mutates_args=(), tags=[torch.Tag.nondeterministic_seeded]
)
def residual_norm(
    x: Tensor, y: Tensor, weight: Tensor, bias: Tensor, rate: float, epsilon: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """LayerNorm(x + Dropout(y)) of rows [N, C], and what its gradient needs.

    C is a power of two. The device's generator draws the seed of a mask, which a CUDA graph draws
    anew when it is replayed.
    """
    x = x.contiguous()
    N, C = x.shape
    output, normed = torch.empty_like(x), torch.empty_like(x)
    inverse_deviation = torch.empty(N, device=x.device)
    seed = torch.empty((), dtype=torch.int64, device=x.device)
    if rate:
        seed.random_()
    tensors = (x, y.contiguous(), weight, bias, output, normed, inverse_deviation, seed)
    numbers = (epsilon, *_dropout(rate))
    _launch_rows("residual_norm", x, *tensors, *numbers, DROPS=rate > 0, C=C)
    return output, normed, inverse_deviation, seed


@torch.library.custom_op("nmt::residual_norm_backward", mutates_args=())
def residual_norm_backward(
    gradient: Tensor,
    normed: Tensor,
    weight: Tensor,
    inverse_deviation: Tensor,
    seed: Tensor,
    rate: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of x and y, and [2, C], those of weight and bias."""
    C = len(weight)
    of_x, of_y = torch.empty_like(normed), torch.empty_like(normed)
    sums = _sums("residual_norm_backward", normed, 2, C)
    tensors = (gradient.contiguous(), normed, weight, inverse_deviation, seed, of_x, of_y, sums)
    numbers = _dropout(rate)
    _launch_rows("residual_norm_backward", normed, *tensors, *numbers, DROPS=rate > 0, C=C)
    return of_x, of_y, sums.sum(0)


def _dropout(rate: float) -> tuple[int, float]:
    """The least signed number of 32 bits that keeps an element, and the scale of what is kept."""
    return round(rate * 2**32) - 2**31, 1.0 / (1.0 - rate)


@residual_norm.register_fake
def _(x: Tensor, *others: Any) -> tuple[Tensor, ...]:
    inverse_deviation = x.new_empty(x.size(0), dtype=torch.float32)
    seed = x.new_empty((), dtype=torch.int64)
    return torch.empty_like(x), torch.empty_like(x), inverse_deviation, seed


@residual_norm_backward.register_fake
def _(gradient: Tensor, normed: Tensor, weight: Tensor, *others: Any) -> tuple[Tensor, ...]:
    return torch.empty_like(normed), torch.empty_like(normed), weight.new_empty(2, len(weight))


def _save_residual_norm(ctx: Any, inputs: Any, output: Any) -> None:
    _, _, weight, _, ctx.rate, _ = inputs
    _, normed, inverse_deviation, seed = output
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(normed, inverse_deviation, seed)
    ctx.save_for_backward(normed, weight, inverse_deviation, seed)


def _residual_norm_gradients(ctx: Any, gradient: Tensor, *others: Any) -> tuple[Any, ...]:
    of_x, of_y, sums = residual_norm_backward(gradient, *ctx.saved_tensors, ctx.rate)
    return of_x, of_y, *sums.unbind(), None, None


residual_norm.register_autograd(_residual_norm_gradients, setup_context=_save_residual_norm)


@torch.library.custom_op("nmt::relu_backward", mutates_args=())
def relu_backward(gradient: Tensor, output: Tensor) -> tuple[Tensor, Tensor]:
    """The gradient of what ReLU made `output` [N, C] of, and its sum [C] over the rows."""
    C = output.size(1)
    input_gradient = torch.empty_like(output)
    sums = _sums("relu_backward", output, C)
    block = 1 << (C - 1).bit_length()
    tensors = (gradient.contiguous(), output, input_gradient, sums)
    _launch_rows("relu_backward", output, *tensors, C=C, BLOCK=block)
    return input_gradient, sums.sum(0).to(output.dtype)


@relu_backward.register_fake
def _(gradient: Tensor, output: Tensor) -> tuple[Tensor, Tensor]:
    return torch.empty_like(output), output.new_empty(output.size(1))


@torch.library.custom_op("nmt::cross_entropy", mutates_args=["logits"])
def cross_entropy(logits: Tensor, targets: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
    """See `fast.loss.to_gradient`."""
    rows, V = logits.shape
    log_normalisers = torch.empty(rows, device=logits.device)
    target_logits = torch.empty_like(log_normalisers)
    tensors = (logits, targets, log_normalisers, target_logits)
    block = min(LOGITS, 1 << (V - 1).bit_length())
    _launch("cross_entropy", rows, *tensors, 1 - epsilon, V=V, BLOCK=block)
    return log_normalisers, target_logits


@cross_entropy.register_fake
def _(logits: Tensor, targets: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
    rows = logits.new_empty(logits.size(0), dtype=torch.float32)
    return rows, torch.empty_like(rows)
