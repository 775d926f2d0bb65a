"""Where the rows of a batch are, and which keys each query sees: the layouts of attention (section 3.2.3).

Everything else in a layer computes the rows one by one. In training they are real tokens, and a kernel gets padded
sentences, or they are bins, in which a mask keeps the sentences apart. In decoding the rows are the newest positions of
hypotheses, and the keys of earlier ones are in caches.

Letters: B sentences, T queries and S keys of each, N rows of queries and M of keys, H heads; in a decoding step, A
sentences, W hypotheses of each, N = A * W, C columns of a cache.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from nmt_cli.errors import UsageError
from nmt_cli.layers.attention import AttentionMask, Kernel, Layout
from nmt_cli.packing import Bins, Packing, Rows


def layout_of(queries: Rows, keys: Rows, causal: bool = False) -> Layout:
    """Return the layout of attention from the rows of `queries` to those of `keys`, which are packed alike."""
    kind: Any = Binned if isinstance(queries, Bins) else Padded
    layout: Layout = kind.of(queries, keys, causal)
    return layout


@dataclass(frozen=True)
class Padded:
    """Rows that are padded sentences while a kernel computes their attention."""

    queries: Packing
    keys: Packing
    mask: AttentionMask

    @classmethod
    def of(cls, queries: Packing, keys: Packing, causal: bool = False) -> Self:
        """See `layout_of`. A causal mask needs no padding, which is on the right, after every real query."""
        return cls(queries, keys, AttentionMask(None if causal or keys.full else keys.padding(), causal))

    def attend(self, kernel: Kernel, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """See `Layout`."""
        packings = (self.queries, self.keys, self.keys)
        rows = zip(packings, (query, key, value), strict=True)
        query, key, value = (packing.unpack(each).transpose(1, 2) for packing, each in rows)  # [B, H, T or S, d]
        query, key = (kernel.placed(each, torch.arange(each.size(2), device=each.device)) for each in (query, key))
        return self.queries.pack(self.compute(kernel, query, key, value).transpose(1, 2))

    def compute(self, kernel: Kernel, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Return the kernel's output, if it has the right shape."""
        heads: Tensor = kernel(query, key, value, self.mask)
        if heads.shape != (expected := (*query.shape[:3], value.size(3))):
            name = type(kernel).__qualname__
            raise UsageError(f"the attention kernel {name} returned {list(heads.shape)}, expected {list(expected)}")
        return heads


@dataclass(frozen=True)
class Recorded(Padded):
    """Padded sentences, with the weights [B, H, T, S] of each layer whose attention was computed."""

    weights: list[Tensor] = field(default_factory=list)

    def compute(self, kernel: Kernel, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Keep the weights, too."""
        self.weights.append(kernel.weights(query, key, self.mask))
        return super().compute(kernel, query, key, value)


@dataclass(frozen=True)
class Binned:
    """Bins for softmax attention, which a mask restricts to the query's own sentence."""

    queries: Tensor  # [N] positions
    keys: Tensor  # [M] positions
    allowed: Tensor  # [B, 1, T, S], where T and S are the width of a bin

    @classmethod
    def of(cls, queries: Bins, keys: Bins, causal: bool = False) -> Self:
        """See `layout_of`. The filler sees every key, because a softmax over none would be NaN."""
        of_query, of_key = queries.sentences[:, None, :, None], keys.sentences[:, None, None, :]
        allowed = (of_query == of_key) | (of_query == 0)
        return cls(queries.positions, keys.positions, allowed.tril() if causal else allowed)

    def attend(self, kernel: Kernel, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """See `Layout`."""
        assert kernel.window is not None
        query, key = kernel.placed(query, self.queries[:, None]), kernel.placed(key, self.keys[:, None])
        query, key, value = (_by_sentence(rows, len(self.allowed)) for rows in (query, key, value))
        # Neighbours in a sentence are neighbours in its bin.
        near = self.allowed if kernel.window < 0 else self.allowed.tril(kernel.window).triu(-kernel.window)
        rate = kernel.dropout.rate if kernel.training else 0.0
        return _rows(F.scaled_dot_product_attention(query, key, value, near, rate))


@dataclass
class Past:
    """The newest positions of N hypotheses, which attend to their own pasts, and become a part of them."""

    key: Tensor  # [N, H, T, d_k], of the positions so far
    value: Tensor  # [N, H, T, d_v]

    def attend(self, kernel: Kernel, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """See `Layout`."""
        length = self.key.size(2)
        position = torch.tensor([length], device=query.device)
        query, key = kernel.placed(query, position), kernel.placed(key, position)
        self.key = torch.cat([self.key, key[:, :, None]], dim=2)
        self.value = torch.cat([self.value, value[:, :, None]], dim=2)
        heads: Tensor = kernel(query[:, :, None], self.key, self.value, AttentionMask(causal=True, offset=length))
        return heads[:, :, 0]


@dataclass(frozen=True)
class ToSource:
    """The newest positions of hypotheses, with keys [A, H, S, d_k] and values [A, H, S, d_v] of their sentences."""

    mask: AttentionMask

    def attend(self, kernel: Kernel, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """See `Layout`."""
        return _rows(kernel(_by_sentence(query, len(key)), key, value, self.mask))


def _by_sentence(rows: Tensor, sentences: int) -> Tensor:
    """[N, H, width] -> [A, H, W, width]."""
    N, H, width = rows.shape
    return rows.view(sentences, N // sentences, H, width).transpose(1, 2)


def _rows(heads: Tensor) -> Tensor:
    """[A, H, W, width] -> [N, H, width]."""
    return heads.transpose(1, 2).flatten(0, 1)
