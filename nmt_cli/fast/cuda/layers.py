"""Layers on a GPU."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from nmt_cli.device import product_dtype
from nmt_cli.fast import rows
from nmt_cli.fast.cuda import operators
from nmt_cli.fast.cuda.bins import WIDTH
from nmt_cli.fast.layout import Binned
from nmt_cli.layers.attention import AttentionMask, FullAttention, Kernel, MultiHeadAttention
from nmt_cli.layers.embedding import SinusoidalPositions
from nmt_cli.layers.sublayer import FeedForward, Residual

HEADS = {16, 32, 64, 128}  # their widths that fit a tile
ROWS = 16  # of a tile, the fewest of a product in Triton


def full_attention(
    self: FullAttention, query: Tensor, key: Tensor, value: Tensor, mask: AttentionMask
) -> Tensor:
    """See `Kernel`."""
    causal = mask.causal and query.size(2) > 1
    # PyTorch's causal kernels begin at the first key, and take no other mask.
    by_kernel = causal and mask.padding is None and mask.offset == 0
    allowed = None if by_kernel else mask.allowed(query, key)
    rate = self.dropout.rate if self.training else 0.0
    return F.scaled_dot_product_attention(query, key, value, allowed, rate, is_causal=by_kernel)


def feed_forward(self: FeedForward, x: Tensor) -> Tensor:
    """See `FeedForward`. A GPU has a kernel for a product of rows and ReLU."""
    return _feed_forward(self, x, by_kernel=False)


def feed_forward_by_kernel(self: FeedForward, x: Tensor) -> Tensor:
    """See `FeedForward`. Another kernel computes the gradient of ReLU and its sum."""
    return _feed_forward(self, x, by_kernel=True)


def _feed_forward(self: FeedForward, x: Tensor, by_kernel: bool) -> Tensor:
    if x.dim() != 2 or not self.training or not is_relu_of_sum(self):
        return FeedForward.forward(self, x)
    dtype = product_dtype(x)
    weight, bias = self.inner.weight.to(dtype), self.inner.bias.to(dtype)
    inner: Tensor = _ProductWithReLU.apply(x.to(dtype), weight, bias, by_kernel)  # type: ignore[no-untyped-call]
    return self.outer(self.dropout(inner))


def is_relu_of_sum(feed_forward: FeedForward) -> bool:
    """Return whether it is equation 2."""
    return feed_forward.activation == "relu" and feed_forward.inner.bias is not None


def multi_head_attention(self: MultiHeadAttention, x: Tensor, context: Any, layout: Any) -> Tensor:
    """See `MultiHeadAttention`. The kernel reads and writes products as they are."""
    if not isinstance(layout, Binned) or layout.allowed.size(-1) > WIDTH or not in_tiles(self):
        return MultiHeadAttention.forward(self, x, context, layout)
    if self.cross:
        queries = F.linear(x, *self.stacked("q"))
        packed = [queries, F.linear(context, *self.stacked("kv"))]
    else:
        packed = [F.linear(x, *self.stacked("qkv"))]
    sentences = (layout.queries.sentences, layout.keys.sentences)
    heads = operators.attention(packed, *sentences, self.num_heads, self.widths["q"], layout.causal)
    return self.w_o(heads)


def in_tiles(attention: MultiHeadAttention) -> bool:
    """Return whether a tile holds a head, with the attention of equation 1 and no more."""
    kernel, widths = attention.kernel, attention.widths
    if kernel.window != -1 or type(kernel).placed is not Kernel.placed or attention.normalised:
        return False
    return not kernel.dropout.rate and widths["q"] == widths["v"] and widths["q"] in HEADS


def residual(self: Residual, x: Tensor, sublayer: Any) -> Tensor:
    """See `Residual`. Post-norm is one kernel."""
    if x.dim() != 2 or not in_kernel(self):
        return rows.residual(self, x, sublayer)
    x, y = rows.lowered(x), rows.lowered(sublayer(x))
    rate = self.dropout.rate if self.training else 0.0
    norm = self.norm
    output, *_ = operators.residual_norm(x, y, norm.weight, norm.bias, rate, norm.eps)
    return output


def in_kernel(residual: Residual) -> bool:
    """Return whether there is a kernel of this order and width."""
    (width,) = residual.norm.normalized_shape
    return not residual.pre_norm and 4 <= width <= 8192 and width & (width - 1) == 0


def sinusoidal_positions(self: SinusoidalPositions, start: int, length: int) -> Tensor:
    """See `SinusoidalPositions`. CUDA graphs of shorter sentences still read a table that grew."""
    table = self.table
    encodings = SinusoidalPositions.forward(self, start, length)
    if self.table is not table:
        vars(self).setdefault("former", []).append(table)
    return encodings


class _ProductWithReLU(torch.autograd.Function):
    """max(0, x W^T + b)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, by_kernel: bool) -> Tensor:
        output: Tensor = torch._addmm_activation(bias, x, weight.t())
        ctx.save_for_backward(x, weight, output)
        ctx.by_kernel = by_kernel
        return output

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, output = ctx.saved_tensors
        if ctx.by_kernel:
            gradient, bias_gradient = operators.relu_backward(gradients[0], output)
        else:
            gradient = gradients[0] * (output > 0)
            bias_gradient = gradient.sum(0)
        return gradient @ weight, gradient.t() @ x, bias_gradient, None
