"""Additive attention (Bahdanau, Cho and Bengio 2015, section 3 and appendix A.1.2).

Letters: A sentences, Q queries of each, S source length, d_a width of the hidden layer.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


class AdditiveAttention(nn.Module):
    """softmax_j(v^T tanh(W query + U key_j)), a feed-forward network with one hidden layer.

    Args:
        d_query: width of a query.
        d_key: width of a key.
        d_hidden: d_a.
    """

    def __init__(self, d_query: int, d_key: int, d_hidden: int) -> None:
        super().__init__()
        self.query = nn.Linear(d_query, d_hidden, bias=False)
        self.key = nn.Linear(d_key, d_hidden)
        self.score = nn.Linear(d_hidden, 1, bias=False)

    def forward(self, query: Tensor, keys: Tensor, padding: Tensor) -> Tensor:
        """The weights [A, Q, S] of the source positions.

        Args:
            query: [A, Q, d_query].
            keys: the projected source, `key(encoder output)`: [A, S, d_a].
            padding: True at padding: [A, S].
        """
        hidden = torch.tanh(self.query(query)[:, :, None] + keys[:, None])  # [A, Q, S, d_a]
        scores = self.score(hidden).squeeze(-1).float()
        return scores.masked_fill(padding[:, None], -math.inf).softmax(-1)
