"""Additive attention, against its definition for one query and key at a time."""

from __future__ import annotations

import torch

from nmt_cli.table2.additive_attention import AdditiveAttention, Memory


def test_it_is_a_softmax_of_a_feed_forward_network() -> None:
    torch.manual_seed(0)
    attention = AdditiveAttention(4, 6, 5)
    query, source = torch.randn(2, 3, 4), torch.randn(2, 7, 6)
    padding = torch.arange(7) >= torch.tensor([7, 4])[:, None]
    weights = attention(query, Memory(source, attention.key(source), padding))
    for sentence, real in ((0, 7), (1, 4)):
        for q in range(3):
            scores = torch.stack(
                [
                    attention.score.weight[0]
                    @ torch.tanh(attention.query.weight @ query[sentence, q] + attention.key(source[sentence, s]))
                    for s in range(real)
                ]
            )
            torch.testing.assert_close(weights[sentence, q, :real], scores.exp() / scores.exp().sum())
    assert not weights[1, :, 4:].any()
