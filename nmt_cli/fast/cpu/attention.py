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
    allowed = mask.allowed(query, key)
    weights: Tensor = _Weights.apply(_laid_out(query), _laid_out(key), allowed)  # type: ignore[no-untyped-call]
    return torch.matmul(self.dropout(weights), _laid_out(value))


def _laid_out(heads: Tensor) -> Tensor:
    """Return heads [B, H, T, width] one after the other, in the type of products."""
    return heads.contiguous().to(product_dtype(heads))


def softmax_(scores: Tensor) -> Tensor:
    """Softmax over the last dimension, computed in float32 at least, without a gradient.

    It may overwrite `scores`. On a CPU, PyTorch's takes five times as long in bfloat16 and for rows
    of fewer than 16 numbers, its shortest vector.
    """
    wide = scores.to(torch.promote_types(scores.dtype, torch.float32))
    if scores.size(-1) >= 16:
        return torch.softmax(wide, -1, out=wide).to(scores.dtype)
    wide.sub_(wide.amax(-1, keepdim=True)).exp_()
    return wide.div_(wide.sum(-1, keepdim=True)).to(scores.dtype)


def softmax_gradient(weights: Tensor, gradient: Tensor) -> Tensor:
    """The gradient of the scores, by the gradient of the weights."""
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
        mask = query.new_zeros(1, dtype=torch.promote_types(query.dtype, torch.float32))
        if allowed is not None:  # a sum is faster than `masked_fill` of all scores
            mask = torch.where(allowed, mask, -math.inf)
        d_k = query.size(-1)
        products = torch.matmul(query, key.mT)
        scores = torch.add(mask, products, alpha=d_k**-0.5)  # [B, H, T, S]
        weights = softmax_(scores).to(query.dtype)
        ctx.save_for_backward(query, key, weights)
        return weights

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        query, key, weights = ctx.saved_tensors
        dtype = torch.promote_types(query.dtype, torch.float32)
        gradient = softmax_gradient(weights.to(dtype), gradients[0].to(dtype))
        d_k = query.size(-1)
        gradient = gradient.mul_(d_k**-0.5).to(query.dtype)
        return gradient @ key, gradient.mT @ query, None
