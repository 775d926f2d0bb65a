"""Attention of recurrent decoders over the source, and additive attention (Bahdanau, Cho and Bengio
2015, appendix A.1.2).

Letters: A sentences, Q queries of each, S source length, d_a width of the hidden layer.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn


class Memory(NamedTuple):
    """The source as a decoder attends to it."""

    values: Tensor  # [A, S, d_v]
    keys: Tensor  # [A, S, d_a]
    padding: Tensor  # True at padding: [A, S]


def softmax_over_source(scores: Tensor, padding: Tensor) -> Tensor:
    """The weights [A, Q, S] of `scores`, which are 0 where `padding` [A, S] is True."""
    # In float32, so that attention in bfloat16 adds up to 1.
    return scores.float().masked_fill(padding[:, None], -math.inf).softmax(-1)


class SourceAttention(nn.Module):
    """Attention with one head.

    A subclass computes the scores: queries [A, Q, d] and keys [A, S, d_a] -> [A, Q, S].
    """

    def read(self, query: Tensor, memory: Memory) -> tuple[Tensor, Tensor]:
        """Return the contexts [N, ..., d_v] and weights [N, ..., S] of queries [N, ..., d].

        N = A * W: the W hypotheses of a sentence share its memory.
        """
        sentences, width = len(memory.values), query.size(-1)
        scores = self(query.reshape(sentences, -1, width), memory.keys)
        weights = softmax_over_source(scores, memory.padding)
        context = weights @ memory.values
        rows = query.shape[:-1]
        return context.view(*rows, -1), weights.view(*rows, -1)


class AdditiveAttention(SourceAttention):
    """softmax_j(v^T tanh(W query + U key_j)), a feed-forward network with one hidden layer."""

    def __init__(self, d_query: int, d_key: int, d_hidden: int) -> None:
        super().__init__()
        self.query = nn.Linear(d_query, d_hidden, bias=False)
        self.key = nn.Linear(d_key, d_hidden)  # makes the keys
        self.score = nn.Linear(d_hidden, 1, bias=False)

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        hidden = torch.tanh(self.query(query)[:, :, None] + keys[:, None])  # [A, Q, S, d_a]
        return self.score(hidden).squeeze(-1)
