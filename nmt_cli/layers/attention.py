"""Multi-head attention (section 3.2.2) and the full attention of equation 1.

Letters: B rows, T queries, S keys, H heads, d_k width of a query and a key, d_v width of a value, d_model width of the
model.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nmt_cli.errors import UsageError
from nmt_cli.layers import packed_attention
from nmt_cli.layers.dropout import Dropout
from nmt_cli.packing import Packing
from nmt_cli.registry import register


@dataclass(frozen=True)
class AttentionMask:
    """Which keys each query may attend to."""

    padding: Tensor | None = None  # [B, S], True where the key is padding
    causal: bool = False  # a query attends to no key after its own position
    offset: int = 0  # position of the first query among the keys; in a decoding step, the length of the cache
    queries: Packing | None = None  # of the rows that make the queries, if they are packed
    keys: Packing | None = None  # of the rows that make the keys and values, if they are packed
    recorded: list[Tensor] | None = None  # if a list, each attention appends its weights [B, H, T, S]

    @property
    def on_rows(self) -> bool:
        """Whether attention itself is computed on packed rows: the packings have `starts`."""
        return self.queries is not None and self.queries.starts is not None

    @property
    def packings(self) -> tuple[Packing, Packing]:
        """The packings of queries and of keys, which must be there."""
        assert self.queries is not None
        assert self.keys is not None
        return self.queries, self.keys

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


class Kernel(Protocol):
    """Attention of queries over keys and values: the registered components of kind `attention`.

    The output for a query is a weighted mean of the values. A `WeightsKernel` may add what does not depend on them.
    """

    def __call__(self, query: Tensor, key: Tensor, value: Tensor, mask: AttentionMask) -> Tensor:
        """`query` [B, H, T, d_k], `key` [B, H, S, d_k] and `value` [B, H, S, d_v] -> [B, H, T, d_v].

        d_v may be any width, except for a `WeightsKernel`.
        """


@runtime_checkable
class WeightsKernel(Protocol):
    """Optional for a kernel: its weights. Those of other kernels are their output for an identity matrix as values."""

    def weights(self, query: Tensor, key: Tensor, mask: AttentionMask) -> Tensor:
        """`query` [B, H, T, d_k] and `key` [B, H, S, d_k] -> [B, H, T, S]; dropout does not apply."""


@runtime_checkable
class RowKernel(Protocol):
    """Optional for a kernel: attention over packed rows, for training on a GPU."""

    def takes_rows(self, device: torch.device, dtype: torch.dtype, d_k: int, d_v: int) -> bool:
        """Return whether `attend_rows` computes such heads on this device."""

    def attend_rows(self, query: Tensor, key: Tensor, value: Tensor, mask: AttentionMask) -> Tensor:
        """`query` [N, H, d_k], `key` [M, H, d_k] and `value` [M, H, d_v] -> [N, H, d_v].

        The packings of `mask` have `starts`.
        """


def softmax_weights(query: Tensor, key: Tensor, allowed: Tensor | None, bias: Tensor | None = None) -> Tensor:
    """softmax(Q K^T / sqrt(d_k) + bias) over the allowed keys: [B, H, T, S]; NaN where a query has none.

    Args:
        bias: broadcasts to [B, H, T, S].
    """
    scores = torch.matmul(query * query.size(-1) ** -0.5, key.transpose(-1, -2))
    if bias is not None:
        scores = scores + bias
    if allowed is not None:
        scores = scores.masked_fill(~allowed, -math.inf)
    return scores.softmax(-1)


def weights_of(kernel: Kernel, query: Tensor, key: Tensor, mask: AttentionMask) -> Tensor:
    """The weights [B, H, T, S] of `query` [B, H, T, d_k] for `key` [B, H, S, d_k]."""
    if isinstance(kernel, WeightsKernel):
        return kernel.weights(query, key, mask)
    identity = torch.eye(key.size(2), dtype=key.dtype, device=key.device)
    return kernel(query, key, identity.expand(*key.shape[:2], -1, -1), mask)


@dataclass(frozen=True)
class FullAttentionConfig:
    """Full attention has no settings."""


@register("attention", "full", FullAttentionConfig)
class FullAttention(nn.Module):
    """Scaled dot-product attention, equation 1: softmax(Q K^T / sqrt(d_k)) V."""

    def __init__(self, config: FullAttentionConfig | None = None, *, dropout: float = 0.0, **widths: int) -> None:
        super().__init__()
        self.dropout = Dropout(dropout)

    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: AttentionMask) -> Tensor:
        """See `Kernel`."""
        if query.device.type == "cpu":  # at sentence lengths, faster than PyTorch's fused kernel
            weights = softmax_weights(query, key, mask.allowed(query, key))
            return torch.matmul(self.dropout(weights), value)
        causal = mask.causal and query.size(2) > 1
        allowed = mask.allowed(query, key) if mask.padding is not None or (causal and mask.offset > 0) else None
        rate = self.dropout.rate if self.training else 0.0
        return F.scaled_dot_product_attention(query, key, value, allowed, rate, is_causal=causal and allowed is None)

    def takes_rows(self, device: torch.device, dtype: torch.dtype, d_k: int, d_v: int) -> bool:
        """See `RowKernel`."""
        return packed_attention.available(device, dtype, d_k, d_v, self.dropout.rate)

    def attend_rows(self, query: Tensor, key: Tensor, value: Tensor, mask: AttentionMask) -> Tensor:
        """See `RowKernel`."""
        return packed_attention.attend(query, key, value, *mask.packings, mask.causal)


class MultiHeadAttention(nn.Module):
    """Section 3.2.2: MultiHead(Q, K, V) = Concat(head_1, ..., head_h) W^O.

    d_k and d_v need not be d_model / h (Table 3, rows A and B). The paper has no biases.
    """

    def __init__(
        self, d_model: int, num_heads: int, d_k: int, d_v: int, kernel: Kernel, *, biases: bool = False
    ) -> None:
        super().__init__()
        self.num_heads, self.d_k, self.d_v = num_heads, d_k, d_v
        self.w_q = nn.Linear(d_model, num_heads * d_k, bias=biases)
        self.w_k = nn.Linear(d_model, num_heads * d_k, bias=biases)
        self.w_v = nn.Linear(d_model, num_heads * d_v, bias=biases)
        self.w_o = nn.Linear(num_heads * d_v, d_model, bias=biases)
        self.kernel = kernel

    def forward(self, x: Tensor, context: Tensor, mask: AttentionMask) -> Tensor:
        """Queries from `x` [B, T, d_model], keys and values from `context` [B, S, d_model]: [B, T, d_model].

        Rows that the mask says are packed are [N, d_model] instead.
        """
        if context is x:
            query, key, value = self._heads(x, mask.queries, self.w_q, self.w_k, self.w_v)
        else:
            (query,) = self._heads(x, mask.queries, self.w_q)
            key, value = self._heads(context, mask.keys, self.w_k, self.w_v)
        if mask.on_rows:
            heads = self.kernel.attend_rows(query, key, value, mask)  # type: ignore[attr-defined]  # [N, H, d_v]
            return self.w_o(heads.flatten(1))
        if mask.recorded is not None:
            mask.recorded.append(weights_of(self.kernel, query, key, mask))
        heads = self.kernel(query, key, value, mask)  # [B, H, T, d_v]
        if heads.shape != (expected := (*query.shape[:3], value.size(3))):
            name = getattr(self.kernel, "__qualname__", type(self.kernel).__qualname__)
            raise UsageError(f"the attention kernel {name} returned {list(heads.shape)}, expected {list(expected)}")
        concatenated = heads.transpose(1, 2).flatten(2)
        return self.w_o(concatenated if mask.queries is None else mask.queries.pack(concatenated))

    def takes_rows(self, device: torch.device, dtype: torch.dtype) -> bool:
        """Return whether attention can be computed on packed rows, with packings that have `starts`."""
        return isinstance(self.kernel, RowKernel) and self.kernel.takes_rows(device, dtype, self.d_k, self.d_v)

    def _heads(self, x: Tensor, packing: Packing | None, *projections: nn.Linear) -> list[Tensor]:
        """Project `x` for each of the projections, in one product: [B, H, T, width], or [N, H, width] on rows."""
        weights = [projection.weight for projection in projections]
        biases: list[Tensor] = [projection.bias for projection in projections if projection.bias is not None]
        projected = F.linear(
            x,
            torch.cat(weights) if len(weights) > 1 else weights[0],
            torch.cat(biases) if biases else None,
        )
        on_rows = packing is not None and packing.starts is not None
        if packing is not None and not on_rows:
            projected = packing.unpack(projected)
        split = torch.split(projected, [len(weight) for weight in weights], -1)
        heads = [each.view(*each.shape[:-1], self.num_heads, -1) for each in split]
        return heads if on_rows else [each.transpose(1, 2) for each in heads]
