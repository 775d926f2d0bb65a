"""Where the rows of a batch are, and which keys each query sees: the layouts of attention (section
3.2.3).

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
    """Return the layout of attention from the rows of `queries` to those of `keys`, which are
    packed alike.
    """
    if isinstance(queries, Bins):
        assert isinstance(keys, Bins)
        # The filler sees every key, because a softmax over none would be NaN.
        of_query, of_key = queries.sentences[:, None, :, None], keys.sentences[:, None, None, :]
        allowed = (of_query == of_key) | (of_query == 0)
        return Binned(queries.positions, keys.positions, allowed.tril() if causal else allowed)
    assert isinstance(keys, Packing)
    # A causal mask needs no padding, which is on the right, after every real query.
    return Padded(
        queries, keys, AttentionMask(None if causal or keys.full else keys.padding(), causal)
    )


@dataclass(frozen=True)
class Padded:
    """Rows that are padded sentences while a kernel computes their attention."""

    queries: Packing
    keys: Packing
    mask: AttentionMask

    def attend(self, kernel: Kernel, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """See `Layout`: [N, H, d_k], [M, H, d_k] and [M, H, d_v] -> [N, H, d_v]."""
        query, key, value = (
            self.queries.unpack(query),
            self.keys.unpack(key),
            self.keys.unpack(value),
        )
        return self.queries.pack(self.mask.attend(kernel, query, key, value))


@dataclass(frozen=True)
class Binned:
    """Bins for softmax attention, which a mask restricts to the query's own sentence."""

    queries: Tensor  # [N] positions
    keys: Tensor  # [M] positions
    allowed: Tensor  # [B, 1, T, S], where T and S are the width of a bin

    def attend(self, kernel: Kernel, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """See `Layout`."""
        assert kernel.window is not None
        query, key = (
            kernel.placed(query, self.queries[:, None]),
            kernel.placed(key, self.keys[:, None]),
        )
        query, key, value = (by_sentence(rows, len(self.allowed)) for rows in (query, key, value))
        # Neighbours in a sentence are neighbours in its bin.
        near = (
            self.allowed
            if kernel.window < 0
            else self.allowed.tril(kernel.window).triu(-kernel.window)
        )
        rate = kernel.dropout.rate if kernel.training else 0.0
        return by_row(F.scaled_dot_product_attention(query, key, value, near, rate))


def by_sentence(rows: Tensor, sentences: int) -> Tensor:
    """[N, H, width] -> [A, H, W, width]."""
    N, H, width = rows.shape
    return rows.view(sentences, N // sentences, H, width).transpose(1, 2)


def by_row(heads: Tensor) -> Tensor:
    """[A, H, W, width] -> [N, H, width]."""
    return heads.transpose(1, 2).flatten(0, 1)
