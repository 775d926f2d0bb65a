"""Multi-head attention (section 3.2.2) and its kernels, the registered components of kind `attention`.

Letters: B rows, T queries, S keys, H heads, d_k width of a query and key, d_v width of a value, d_model the model's
width.
A kernel is called as `kernel(query [B,H,T,d_k], key [B,H,S,d_k], value [B,H,S,d_v], places) -> [B,H,T,d_v]`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nmt_cli.layers.dropout import Dropout
from nmt_cli.registry import option, register


@dataclass(frozen=True)
class Places:
    """Which keys each query may look at."""

    padding: Tensor | None = None  # [B, S], True where the key is padding
    causal: bool = False  # a query sees no key to its right
    offset: int = 0  # position of the first query among the keys: the cache's length in a decoding step


class Kernel(Protocol):
    """Attention of given queries over given keys and values."""

    def __call__(self, query: Tensor, key: Tensor, value: Tensor, places: Places) -> Tensor: ...

    def weights(self, query: Tensor, key: Tensor, places: Places) -> Tensor:
        """How much each query looks at each key, [B, H, T, S]; each row sums to 1. For looking at, not for speed."""
        ...


@dataclass(frozen=True)
class FullAttentionConfig:
    """Every position attends to every position: nothing to set."""


@register("attention", "full", FullAttentionConfig)
class FullAttention(nn.Module):
    """Scaled dot-product attention, equation 1: softmax(Q K^T / sqrt(d_k)) V."""

    def __init__(self, config: FullAttentionConfig | None = None, *, dropout: float = 0.0) -> None:
        super().__init__()
        self.dropout = Dropout(dropout)

    def forward(self, query: Tensor, key: Tensor, value: Tensor, places: Places) -> Tensor:
        if query.device.type == "cpu":
            # Two products and a softmax: faster than the fused kernel at a sentence's length on a CPU.
            weights = self.weights(query, key, places)
            return torch.matmul(self.dropout(weights), value)
        causal = places.causal and query.size(2) > 1
        mask = _visible(query, key, places) if places.padding is not None or (causal and places.offset > 0) else None
        rate = self.dropout.rate if self.training else 0.0
        return F.scaled_dot_product_attention(query, key, value, mask, rate, is_causal=causal and mask is None)

    def weights(self, query: Tensor, key: Tensor, places: Places) -> Tensor:
        """The softmax of equation 1: [B, H, T, S]."""
        return _weights(query, key, _visible(query, key, places))


def _weights(query: Tensor, key: Tensor, visible: Tensor | None) -> Tensor:
    """softmax(Q K^T / sqrt(d_k)) over the visible keys: [B, H, T, S]; not a number where a query sees none."""
    scores = torch.matmul(query * query.size(-1) ** -0.5, key.transpose(-1, -2))
    if visible is not None:
        scores = scores.masked_fill(~visible, -math.inf)
    return scores.softmax(-1)


def _visible(query: Tensor, key: Tensor, places: Places) -> Tensor | None:
    """Boolean [B or 1, 1, T or 1, S], or nothing where every query sees every key."""
    visible = None if places.padding is None else ~places.padding[:, None, None, :]
    if places.causal and query.size(2) > 1:
        queries = torch.arange(query.size(2), device=key.device)[:, None] + places.offset
        causal = (torch.arange(key.size(2), device=key.device) <= queries)[None, None]
        visible = causal if visible is None else visible & causal
    return visible


@dataclass(frozen=True)
class RestrictedAttentionConfig:
    """Section 4: self-attention that considers only a neighbourhood around each position."""

    neighbourhood: int = option(
        128, "r: positions around each query that it may look at, r / 2 on each side", minimum=2
    )


@register("attention", "restricted", RestrictedAttentionConfig)
class RestrictedAttention(nn.Module):
    """Restricted self-attention (sections 4 and 7, last row of Table 1): O(r n d) instead of O(n^2 d).

    Queries are cut into blocks of r / 2 positions; a block's neighbourhoods lie in its own block and the two beside it.
    """

    def __init__(self, config: RestrictedAttentionConfig, *, dropout: float = 0.0) -> None:
        super().__init__()
        self.reach = config.neighbourhood // 2
        self.dropout = Dropout(dropout)

    def forward(self, query: Tensor, key: Tensor, value: Tensor, places: Places) -> Tensor:
        if query.size(2) == 1:
            return self._newest(query, key, value, places)
        blocks = -(-query.size(2) // self.reach)
        scores = torch.matmul(self._blocks(query, blocks), self._neighbours(key, blocks).transpose(-1, -2))
        hidden = self._hidden(query.size(2), blocks, places, query.device)
        weights = (scores * query.size(-1) ** -0.5).masked_fill(hidden, -math.inf).softmax(-1)
        heads = torch.matmul(self.dropout(weights.nan_to_num(0.0)), self._neighbours(value, blocks))
        return heads.flatten(2, 3)[:, :, : query.size(2)]

    def weights(self, query: Tensor, key: Tensor, places: Places) -> Tensor:
        """See `Kernel`; zero outside the neighbourhood."""
        positions = torch.arange(query.size(2), device=key.device)[:, None] + places.offset
        near = (positions - torch.arange(key.size(2), device=key.device)).abs() <= self.reach
        visible = _visible(query, key, places)
        return _weights(query, key, near[None, None] if visible is None else near & visible).nan_to_num(0.0)

    def _newest(self, query: Tensor, key: Tensor, value: Tensor, places: Places) -> Tensor:
        """The only query, as in a decoding step, stands at `places.offset`."""
        first = max(0, places.offset - self.reach)
        last = places.offset + 1 + (0 if places.causal else self.reach)
        visible = None if places.padding is None else ~places.padding[:, None, None, first:last]
        weights = _weights(query, key[:, :, first:last], visible).nan_to_num(0.0)
        return torch.matmul(self.dropout(weights), value[:, :, first:last])

    def _blocks(self, x: Tensor, blocks: int) -> Tensor:
        """[B, H, n, d] -> [B, H, blocks, reach, d], filled up with zeros."""
        padded = F.pad(x, (0, 0, 0, blocks * self.reach - x.size(2)))
        return padded.reshape(*x.shape[:2], blocks, self.reach, x.size(-1))

    def _neighbours(self, x: Tensor, blocks: int) -> Tensor:
        """[B, H, n, d] -> [B, H, blocks, 3 reach, d]: each block with the one before it and the one after."""
        cut = F.pad(self._blocks(x, blocks), (0, 0, 0, 0, 1, 1))
        return torch.cat([cut[:, :, :-2], cut[:, :, 1:-1], cut[:, :, 2:]], dim=3)

    def _hidden(self, length: int, blocks: int, places: Places, device: torch.device) -> Tensor:
        """[B or 1, 1, blocks, reach, 3 reach]: True where a query must not look."""
        queries = torch.arange(blocks * self.reach, device=device).view(blocks, self.reach, 1)
        keys = (torch.arange(blocks, device=device)[:, None] - 1) * self.reach + torch.arange(
            3 * self.reach, device=device
        )
        keys = keys[:, None, :]
        hidden = ((queries - keys).abs() > self.reach) | (keys < 0) | (keys >= length)
        if places.causal:
            hidden = hidden | (keys > queries)
        hidden = hidden[None, None]
        if places.padding is not None:
            padding = self._neighbours(places.padding[:, None, :, None].float(), blocks)[:, :, :, None, :, 0]
            hidden = hidden | (padding > 0)
        return hidden


class MultiHeadAttention(nn.Module):
    """Section 3.2.2: MultiHead(Q, K, V) = Concat(head_1, ..., head_h) W^O, projections without biases, as the
    paper has them.

    The kernel may be any registered one. d_k and d_v need not be d_model / h (Table 3, rows A and B).
    """

    def __init__(self, d_model: int, num_heads: int, d_k: int, d_v: int, kernel: Kernel) -> None:
        super().__init__()
        self.num_heads, self.d_k, self.d_v = num_heads, d_k, d_v
        self.w_q = nn.Linear(d_model, num_heads * d_k, bias=False)
        self.w_k = nn.Linear(d_model, num_heads * d_k, bias=False)
        self.w_v = nn.Linear(d_model, num_heads * d_v, bias=False)
        self.w_o = nn.Linear(num_heads * d_v, d_model, bias=False)
        self.kernel = kernel
        self.recorded: list[Tensor] | None = None  # a list here receives the weights of every call

    def queries(self, x: Tensor) -> Tensor:
        """[B, T, d_model] -> [B, H, T, d_k]."""
        return self._heads(self.w_q(x), self.d_k)

    def keys_and_values(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """[B, S, d_model] -> [B, H, S, d_k] and [B, H, S, d_v]."""
        return self._heads(self.w_k(memory), self.d_k), self._heads(self.w_v(memory), self.d_v)

    def attend(self, x: Tensor, key: Tensor, value: Tensor, places: Places) -> Tensor:
        """Queries from `x` [B, T, d_model] over ready keys and values: [B, T, d_model]."""
        query = self.queries(x)
        if self.recorded is not None:
            self.recorded.append(self.kernel.weights(query, key, places))
        heads = self.kernel(query, key, value, places)  # [B, H, T, d_v]
        result: Tensor = self.w_o(heads.transpose(1, 2).flatten(2))
        return result

    def forward(self, x: Tensor, memory: Tensor, places: Places) -> Tensor:
        """Queries from `x` [B, T, d_model], keys and values from `memory` [B, S, d_model]: [B, T, d_model]."""
        return self.attend(x, *self.keys_and_values(memory), places)

    def _heads(self, projected: Tensor, width: int) -> Tensor:
        return projected.view(*projected.shape[:2], self.num_heads, width).transpose(1, 2)
