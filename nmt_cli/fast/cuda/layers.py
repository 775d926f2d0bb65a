"""Layers on a GPU."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from nmt_cli.device import product_dtype
from nmt_cli.layers.attention import AttentionMask, FullAttention
from nmt_cli.layers.embedding import SinusoidalPositions
from nmt_cli.layers.sublayer import FeedForward


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
    weight, bias = self.inner.weight, self.inner.bias
    if x.dim() != 2 or not self.training or self.activation != "relu" or bias is None:
        return FeedForward.forward(self, x)
    dtype = product_dtype(x)
    inner: Tensor = _ProductWithReLU.apply(x.to(dtype), weight.to(dtype), bias.to(dtype))  # type: ignore[no-untyped-call]
    return self.outer(self.dropout(inner))


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
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        output: Tensor = torch._addmm_activation(bias, x, weight.t())
        ctx.save_for_backward(x, weight, output)
        return output

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, ...]:
        x, weight, output = ctx.saved_tensors
        gradient = gradients[0] * (output > 0)
        return gradient @ weight, gradient.t() @ x, gradient.sum(0)
