"""Multi-head attention (section 3.2.2) and the full attention of equation 1.

Letters: B rows, T queries, S keys, H heads, d_k width of a query and a key, d_v width of a value, d_model width of the
model; N and M rows of a batch that make queries and keys.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nmt_cli.device import product_dtype
from nmt_cli.layers.dropout import Dropout

if TYPE_CHECKING:
    from nmt_cli.interfaces import Lengths


@dataclass(frozen=True)
class AttentionMask:
    """Which keys each query may attend to."""

    padding: Tensor | None = None  # [B, S], True where the key is padding
    causal: bool = False  # a query attends to no key after its own position
    offset: int = 0  # position of the first query among the keys; in a decoding step, the length of the cache

    def distances(self, query: Tensor, key: Tensor) -> Tensor:
        """Return how far each key is after each query, negative if it is before it: [T, S]."""
        queries = torch.arange(query.size(2), device=key.device) + self.offset
        return torch.arange(key.size(2), device=key.device) - queries[:, None]

    def allowed(self, query: Tensor, key: Tensor) -> Tensor | None:
        """Return a boolean mask that broadcasts to [B, 1, T, S], or None if every query may attend to every key.

        A single causal query is the newest position of a decoding step and comes after every key.
        """
        allowed = None if self.padding is None else ~self.padding[:, None, None, :]
        if self.causal and query.size(2) > 1:
            causal = (self.distances(query, key) <= 0)[None, None]
            allowed = causal if allowed is None else allowed & causal
        return allowed


class Kernel(nn.Module):
    """Attention of queries over keys and values: the base class of the components of kind `attention`.

    A subclass has a `forward`, whose output for a query is a weighted mean of the values, and what else differs.
    """

    window: int | None = None
    """For softmax attention over so many positions on each side, -1 for all: it may be computed without `forward`."""

    def __init_subclass__(cls) -> None:
        """A class with another `forward` than its base class does not inherit the window."""
        if "forward" in vars(cls) and "window" not in vars(cls):
            cls.window = None

    def __init__(self, config: Any = None, *, dropout: float = 0.0, **widths: int) -> None:
        super().__init__()
        self.dropout = Dropout(dropout)

    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: AttentionMask) -> Tensor:
        """`query` [B, H, T, d_k], `key` [B, H, S, d_k] and `value` [B, H, S, d_v] -> [B, H, T, d_v]."""
        raise NotImplementedError

    def weights(self, query: Tensor, key: Tensor, mask: AttentionMask) -> Tensor:
        """The weights [B, H, T, S], without dropout: the output for an identity matrix as values."""
        identity = torch.eye(key.size(2), dtype=key.dtype, device=key.device)
        return self(query, key, identity.expand(*key.shape[:2], -1, -1), mask)

    def placed(self, x: Tensor, positions: Tensor) -> Tensor:
        """Return queries or keys [..., d_k] with their positions in them; `forward` gets these.

        Args:
            positions: broadcasts to the shape of `x` without its last dimension.
        """
        return x

    def flops(self, lengths: Lengths, width: int) -> float:
        """Operations of a head with d_k + d_v = `width`, in self-attention over sentences of these lengths.

        Matrix products only, a multiply-add is two, and the causal mask saves none.
        """
        return 2.0 * width * float((lengths * lengths).sum())


def softmax_weights(query: Tensor, key: Tensor, mask: AttentionMask, bias: Tensor | None = None) -> Tensor:
    """softmax(Q K^T / sqrt(d_k) + bias) over the allowed keys: [B, H, T, S]; NaN where a query has none.

    A decoding step of full attention has its own, which reads the keys of all hypotheses at once: see `layout.py`.

    Args:
        bias: broadcasts to [B, H, T, S].
    """
    scores = torch.matmul(query * query.size(-1) ** -0.5, key.mT)
    if bias is not None:
        scores = scores + bias
    allowed = mask.allowed(query, key)
    if allowed is not None:
        scores = scores.masked_fill(~allowed, -math.inf)
    return scores.softmax(-1)


class FullAttention(Kernel):
    """Scaled dot-product attention, equation 1: softmax(Q K^T / sqrt(d_k)) V."""

    window = -1

    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: AttentionMask) -> Tensor:
        """See `Kernel`."""
        # At these lengths, faster than the fused kernel. PyTorch 2.11 loses the gradient of a compiled `_Weights`.
        if query.device.type == "cpu" and not torch.compiler.is_compiling():
            query, key, value = (each.contiguous().to(product_dtype(each)) for each in (query, key, value))
            weights: Tensor = _Weights.apply(query, key, mask.allowed(query, key))  # type: ignore[no-untyped-call]
            return torch.matmul(self.dropout(weights), value)
        causal = mask.causal and query.size(2) > 1
        allowed = mask.allowed(query, key) if mask.padding is not None or (causal and mask.offset > 0) else None
        rate = self.dropout.rate if self.training else 0.0
        return F.scaled_dot_product_attention(query, key, value, allowed, rate, is_causal=causal and allowed is None)


def softmax_(scores: Tensor) -> Tensor:
    """Softmax over the last dimension, of the same type, computed in float32 at least; it overwrites `scores`.

    On a CPU, PyTorch's takes five times as long in bfloat16 and for rows of fewer than 16, its shortest vector. There
    is no gradient.
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


class Layout(Protocol):
    """Where the rows of a batch are, and which keys each query sees: see `layout.py`."""

    def attend(self, kernel: Kernel, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """`query` [N, H, d_k], `key` [M, H, d_k] and `value` [M, H, d_v] -> [N, H, d_v]."""


class MultiHeadAttention(nn.Module):
    """Section 3.2.2: MultiHead(Q, K, V) = Concat(head_1, ..., head_h) W^O.

    d_k and d_v need not be d_model / h (Table 3, rows A and B). The paper has no biases.

    Args:
        cross: keys and values are made of other rows than the queries.
        normalised: divide each query and each key of a head by its root mean square, without a learned gain. A score
            is then sqrt(d_k) times their cosine. Henry et al. 2020, "Query-Key Normalization for Transformers", learn
            the factor, and Dehghani et al. 2023, "Scaling Vision Transformers", have layer normalisation.
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        d_k: int,
        d_v: int,
        kernel: Kernel,
        *,
        biases: bool = False,
        cross: bool = False,
        normalised: bool = False,
    ) -> None:
        super().__init__()
        self.num_heads, self.d_k, self.d_v, self.cross, self.normalised = num_heads, d_k, d_v, cross, normalised
        self.w_q, self.w_k, self.w_v = (nn.Linear(d_model, num_heads * width, bias=biases) for width in (d_k, d_k, d_v))
        self.w_o = nn.Linear(num_heads * d_v, d_model, bias=biases)
        self.kernel = kernel

    def forward(self, x: Tensor, context: Tensor | Sequence[Tensor], layout: Layout) -> Tensor:
        """Queries from `x` [N, d_model], keys and values from `context` [M, d_model]: [N, d_model].

        The context of cross-attention may also be the keys and values, as the layout takes them.
        """
        if not self.cross:
            query, key, value = self.heads(x, "qkv")
        else:
            (query,) = self.heads(x, "q")
            key, value = self.heads(context, "kv") if isinstance(context, Tensor) else context
        return self.w_o(layout.attend(self.kernel, query, key, value).flatten(1))

    def heads(self, x: Tensor, letters: str) -> list[Tensor]:
        """Queries "q", keys "k" and values "v" of `x` [N, d_model], in one product: [N, H, d_k or d_v] each."""
        return self.split(F.linear(x, *self.stacked(letters)), letters)

    def split(self, projected: Tensor, letters: str) -> list[Tensor]:
        """The heads in the product of `heads`, [N, H * (the widths of the letters)]."""
        H, widths = self.num_heads, [self.d_v if letter == "v" else self.d_k for letter in letters]
        parts = projected.split_with_sizes([H * width for width in widths], 1)
        heads = [each.view(-1, H, width) for each, width in zip(parts, widths, strict=True)]
        if self.normalised:
            pairs = zip(letters, heads, strict=True)
            return [each if letter == "v" else F.rms_norm(each, each.shape[2:], eps=1e-6) for letter, each in pairs]
        return heads

    def stacked(self, letters: str) -> tuple[Tensor, Tensor | None]:
        """The weights of these projections, one below the other, and their biases."""
        linears = [getattr(self, f"w_{letter}") for letter in letters]
        if len(linears) == 1:
            return linears[0].weight, linears[0].bias
        biases = [linear.bias for linear in linears if linear.bias is not None]
        return torch.cat([linear.weight for linear in linears]), torch.cat(biases) if biases else None
