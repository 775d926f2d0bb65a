"""Full attention on a CPU, with a softmax and a gradient by hand."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from nmt_cli.device import product_dtype
from nmt_cli.layers.attention import AttentionMask, FullAttention


def full_attention(
    self: FullAttention, query: Tensor, key: Tensor, value: Tensor, mask: AttentionMask
) -> Tensor:
    """See `Kernel`. At the lengths of sentences it is faster than PyTorch's fused kernel."""
    query, key, value = (
        heads.contiguous().to(product_dtype(heads)) for heads in (query, key, value)
    )
    weights: Tensor = _Weights.apply(query, key, mask.allowed(query, key))  # type: ignore[no-untyped-call]
    return torch.matmul(self.dropout(weights), value)


def softmax_(scores: Tensor) -> Tensor:
    """Softmax over the last dimension, of the same type, computed in float32 at least; it
    overwrites `scores`.

    On a CPU, PyTorch's takes five times as long in bfloat16 and for rows of fewer than 16, its
    shortest vector. There is no gradient.
    """
    wide = scores.to(torch.promote_types(scores.dtype, torch.float32))
    if scores.size(-1) >= 16:
        return torch.softmax(wide, -1, out=wide).to(scores.dtype)
    wide.sub_(wide.amax(-1, keepdim=True)).exp_()
    return wide.div_(wide.sum(-1, keepdim=True)).to(scores.dtype)


def softmax_gradient(weights: Tensor, gradient: Tensor) -> Tensor:
    """The gradient of the scores, by that of their `softmax_`."""
    if weights.size(-1) >= 16:
        return torch._softmax_backward_data(gradient, weights, -1, weights.dtype)
    product = weights * gradient
    return product.addcmul_(weights, product.sum(-1, keepdim=True), value=-1)


class _Weights(torch.autograd.Function):
    """`softmax_weights` of queries and keys of one type, with a softmax in float32 at least.

    PyTorch's gradient of K^T has to be transposed.
    """

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, allowed: Tensor | None) -> Tensor:
        hidden = query.new_zeros(1, dtype=torch.promote_types(query.dtype, torch.float32))
        if allowed is not None:  # a sum is faster than `masked_fill` of all scores
            hidden = torch.where(allowed, hidden, -math.inf)
        scores = torch.add(hidden, torch.matmul(query, key.mT), alpha=query.size(-1) ** -0.5)
        weights = softmax_(scores).to(query.dtype)
        ctx.save_for_backward(query, key, weights)
        return weights

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        query, key, weights = ctx.saved_tensors
        dtype = torch.promote_types(query.dtype, torch.float32)
        gradient = softmax_gradient(weights.to(dtype), gradients[0].to(dtype))
        gradient = gradient.mul_(query.size(-1) ** -0.5).to(query.dtype)
        return gradient @ key, gradient.mT @ query, None
