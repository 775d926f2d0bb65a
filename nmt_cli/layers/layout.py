"""Where the rows of a batch are, and which keys each query sees: the layouts of attention (section 3.2.3).

Everything else in a layer computes the rows one by one. In training they are real tokens, and a kernel gets padded
sentences, or they are bins, in which a mask keeps the sentences apart. In decoding the rows are the newest positions of
hypotheses, and the keys of earlier ones are in caches.

Letters: B sentences, T queries and S keys of each, N rows of queries and M of keys, H heads; in a decoding step, A
sentences, W hypotheses of each, N = A * W, C columns of a cache.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from nmt_cli.errors import UsageError
from nmt_cli.layers.attention import AttentionMask, Kernel, Layout, softmax_
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


@dataclass(frozen=True)
class Newest:
    """The newest positions of hypotheses, with keys [A, H, S, d_k] and values [A, H, S, d_v] of their sentences."""

    mask: Tensor  # broadcasts to [A * H, W, S]: 0 where a hypothesis sees a key, and -inf elsewhere

    def attend(self, kernel: Kernel, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """See `Layout`."""
        return _softmax_attention(_by_sentence(query, len(key)), key, value, self.mask)


class Step:
    """What all layers need in one step: `columns` [A, W, C] is 0 where a hypothesis sees a column, and -inf elsewhere.

    Args:
        columns: of the positions so far, the newest included.
        position: of the newest tokens, [1].
        newest: the W columns of the newest tokens.
        alone: every hypothesis sees every column.
    """

    def __init__(
        self, columns: Tensor, heads: int, position: Tensor, newest: slice | Tensor, alone: bool = False
    ) -> None:
        A, W, C = columns.shape
        self.columns, self.position, self.newest = columns, position, newest
        self.mask = columns[:1, :, :1] if alone else columns[:, None].expand(A, heads, W, C).flatten(0, 1)

    @cached_property
    def own(self) -> Tensor:
        """The columns [A, W, length] of each hypothesis' past, in the order of positions."""
        return (self.columns == 0).nonzero()[:, 2].view(*self.columns.shape[:2], -1)


@dataclass(frozen=True)
class Cached:
    """The newest positions of hypotheses, which attend to their own pasts and enter the cache of a layer."""

    step: Step
    cache: Tensor  # keys and values [A, H, at least C, d_k + d_v]

    def attend(self, kernel: Kernel, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """See `Layout`."""
        A, W, C = self.step.columns.shape
        query, key = kernel.placed(query, self.step.position), kernel.placed(key, self.step.position)
        _, H, d_k = query.shape
        self.cache[:, :, self.step.newest] = _by_sentence(torch.cat([key, value], 2), A)
        if kernel.window == -1:
            keys, values = self.cache.narrow(2, 0, C).tensor_split((d_k,), 3)
            return _softmax_attention(_by_sentence(query, A), keys, values, self.step.mask)
        T = self.step.own.size(2)
        index = self.step.own.view(A, 1, W * T, 1).expand(A, H, W * T, self.cache.size(3))
        past = self.cache.gather(2, index).view(A, H, W, T, -1).transpose(1, 2).flatten(0, 1)  # [N, H, T, d_k + d_v]
        mask = AttentionMask(causal=True, offset=T - 1)
        heads: Tensor = kernel(query[:, :, None], past[..., :d_k], past[..., d_k:], mask)
        return heads[:, :, 0]


def _softmax_attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
    """Equation 1 for keys in any order: [A, H, W or S, width] and a mask [A * H, W, S] of 0 and -inf -> [N, H, d_v]."""
    A, H, W, d_k = query.shape
    if query.device.type != "cpu":  # one kernel; on a CPU it is slower than products
        # A single 0 hides nothing; kernels with a mask need one whose last dimension is not expanded.
        seen = None if mask.numel() == 1 else mask.view(-1, min(H, len(mask)), *mask.shape[1:])
        return _rows(F.scaled_dot_product_attention(query, key, value, seen))
    scores = torch.baddbmm(mask, query.flatten(0, 1), key.flatten(0, 1).mT, alpha=d_k**-0.5)
    return _rows(torch.bmm(softmax_(scores), value.flatten(0, 1)).view(A, H, W, -1))


def _by_sentence(rows: Tensor, sentences: int) -> Tensor:
    """[N, H, width] -> [A, H, W, width]."""
    N, H, width = rows.shape
    return rows.view(sentences, N // sentences, H, width).transpose(1, 2)


def _rows(heads: Tensor) -> Tensor:
    """[A, H, W, width] -> [N, H, width]."""
    return heads.transpose(1, 2).flatten(0, 1)
