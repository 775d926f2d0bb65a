"""Linear biases against published slopes, another implementation, and the equation term by term."""

from __future__ import annotations

import math

import pytest
import torch

from nmt_cli.annexes.later.alibi_attention import AlibiAttention, slopes
from nmt_cli.annexes.later.settings import AlibiAttentionConfig
from nmt_cli.layers.attention import AttentionMask


def test_published_slopes() -> None:
    """Section 3: 1/2, 1/4, ..., 1/256 for 8 heads.

    For 16, with 2^(-1/2) as first term and as ratio.
    """
    assert slopes(8).tolist() == [1 / 2**i for i in range(1, 9)]
    torch.testing.assert_close(slopes(16), torch.tensor([0.5**0.5]) ** torch.arange(1, 17))


def test_causal_biases_are_those_of_another_implementation() -> None:
    """build_alibi_tensor of transformers 5.23.0 (modeling_bloom.py): 4 positions, heads 1, 2, 8.

    It adds j times the slope, which differs from our -(i - j) times the slope by a constant of each
    query.

    It adds j times the slope, which differs from our -(i - j) times the slope by a constant of each
    query.
    """
    biases = {
        0: [0.0, 0.5, 1.0, 1.5],
        1: [0.0, 0.25, 0.5, 0.75],
        7: [0.0, 0.003906, 0.007812, 0.011719],
    }
    x = torch.zeros(1, 8, 4, 2)
    weights = AlibiAttention(AlibiAttentionConfig()).weights(x, x, AttentionMask(causal=True))
    for head, bias in biases.items():
        for i in range(4):
            expected = torch.tensor(bias[: i + 1]).softmax(0)
            torch.testing.assert_close(weights[0, head, i, : i + 1], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("heads", [3, 4])
def test_both_directions_have_one_slope(heads: int) -> None:
    torch.manual_seed(0)
    query, key, value = torch.randn(3, 1, heads, 6, 4)
    output = AlibiAttention(AlibiAttentionConfig())(query, key, value, AttentionMask())
    for h in range(heads):
        slope = 2 ** (-8 * (h + 1) / heads)
        for i in range(6):
            e = [
                math.exp(float(query[0, h, i] @ key[0, h, j]) / 2 - slope * abs(i - j))
                for j in range(6)
            ]
            expected = sum(e[j] / sum(e) * value[0, h, j] for j in range(6))
            torch.testing.assert_close(output[0, h, i], expected, rtol=1e-4, atol=1e-5)
