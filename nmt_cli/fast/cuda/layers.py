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
    allowed = (
        mask.allowed(query, key)
        if mask.padding is not None or (causal and mask.offset > 0)
        else None
    )
    rate = self.dropout.rate if self.training else 0.0
    return F.scaled_dot_product_attention(
        query, key, value, allowed, rate, is_causal=causal and allowed is None
    )


def feed_forward(self: FeedForward, x: Tensor) -> Tensor:
    """See `FeedForward`. A GPU has a kernel for a product of rows and ReLU."""
    if x.dim() != 2 or not self.training or self.activation != "relu" or self.inner.bias is None:
        return FeedForward.forward(self, x)
    low = (tensor.to(product_dtype(x)) for tensor in (x, self.inner.weight, self.inner.bias))
    inner: Tensor = _ProductWithReLU.apply(*low)  # type: ignore[no-untyped-call]
    return self.outer(self.dropout(inner))


def sinusoidal_positions(self: SinusoidalPositions, start: int, length: int) -> Tensor:
    """See `SinusoidalPositions`. A table that was too short stays: CUDA graphs of shorter sentences
    still read it.
    """
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
