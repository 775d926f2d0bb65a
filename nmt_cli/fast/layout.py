"""Layouts of attention over rows of tokens: where the rows are, and which keys each query sees.

Everything else in a layer computes the rows one by one. They are real tokens, and a kernel gets
padded sentences, or they are bins, in which a mask keeps the sentences apart.

Letters: B sentences, T queries and S keys of each, N rows of queries and M of keys, H heads.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from nmt_cli.fast.packing import Bins, Packing, Rows
from nmt_cli.layers.attention import AttentionMask, Kernel, Layout


def layout_of(queries: Rows, keys: Rows, causal: bool = False) -> Layout:
    """Return the layout of attention from `queries` to `keys`, which are packed alike."""
    if isinstance(queries, Bins):
        assert isinstance(keys, Bins)
        of_query = queries.sentences[:, None, :, None]  # [B, 1, T, 1]
        of_key = keys.sentences[:, None, None, :]  # [B, 1, 1, S]
        # The filler sees every key, because a softmax over none would be NaN.
        allowed = (of_query == of_key) | (of_query == 0)  # [B, 1, T, S]
        if causal:
            allowed = allowed.tril()
        return Binned(queries, keys, causal, allowed)
    assert isinstance(keys, Packing)
    padding = None
    # Padding is on the right, after every real query, so a causal mask hides it.
    if not causal and not keys.full:
        padding = keys.padding()
    return Padded(queries, keys, AttentionMask(padding, causal))


@dataclass(frozen=True)
class Padded:
    """Rows that are padded sentences while a kernel computes their attention."""

    queries: Packing
    keys: Packing
    mask: AttentionMask

    def attend(self, kernel: Kernel, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """See `Layout`: [N, H, d_k], [M, H, d_k] and [M, H, d_v] -> [N, H, d_v]."""
        query = self.queries.unpack(query)  # [B, T, H, d_k]
        key = self.keys.unpack(key)  # [B, S, H, d_k]
        value = self.keys.unpack(value)  # [B, S, H, d_v]
        return self.queries.pack(self.mask.attend(kernel, query, key, value))


@dataclass(frozen=True)
class Binned:
    """Bins for softmax attention, which a mask restricts to the query's own sentence."""

    queries: Bins
    keys: Bins
    causal: bool
    allowed: Tensor  # [B, 1, T, S], where T and S are the width of a bin

    def attend(self, kernel: Kernel, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """See `Layout`: [N, H, d_k], [M, H, d_k] and [M, H, d_v] -> [N, H, d_v]."""
        assert kernel.window is not None
        bins = len(self.allowed)
        query = by_sentence(kernel.placed(query, self.queries.positions[:, None]), bins)
        key = by_sentence(kernel.placed(key, self.keys.positions[:, None]), bins)
        value = by_sentence(value, bins)
        allowed = self.allowed
        if kernel.window >= 0:  # neighbours in a sentence are neighbours in its bin
            allowed = allowed.tril(kernel.window).triu(-kernel.window)
        rate = kernel.dropout.rate if kernel.training else 0.0
        return by_row(F.scaled_dot_product_attention(query, key, value, allowed, rate))


def by_sentence(rows: Tensor, sentences: int) -> Tensor:
    """[N, H, width] -> [A, H, W, width], where N = A * W."""
    N, H, width = rows.shape
    return rows.view(sentences, N // sentences, H, width).transpose(1, 2)


def by_row(heads: Tensor) -> Tensor:
    """[A, H, W, width] -> [N, H, width]."""
    return heads.transpose(1, 2).flatten(0, 1)
