"""Rotary positions against values of another implementation."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from nmt_cli.annexes.later.rotary_attention import RotaryAttention, rotated
from nmt_cli.annexes.later.settings import RotaryAttentionConfig
from nmt_cli.errors import UsageError
from nmt_cli.layers.attention import AttentionMask
from nmt_cli.layers.layout import Past

# apply_rotary_pos_emb of transformers 5.23.0 (modeling_llama.py), for [1, 2, 3, 4, 5, 6] at
# positions 0, 3 and 100.
REFERENCE = torch.tensor(
    [
        [1.000000, 2.000000, 3.000000, 4.000000, 5.000000, 6.000000],
        [-1.554472, 1.286651, 2.961158, -3.818850, 5.229199, 6.019265],
        [2.887782, 4.845990, 1.647961, 2.942910, -2.348697, 6.502632],
    ]
)


def test_it_agrees_with_another_implementation() -> None:
    x = torch.arange(1.0, 7.0).expand(3, 6)
    torch.testing.assert_close(
        rotated(x, torch.tensor([0, 3, 100])), REFERENCE, rtol=1e-5, atol=1e-5
    )


def test_scores_depend_on_the_distance_only() -> None:
    torch.manual_seed(0)
    query, key, positions = torch.randn(9, 8), torch.randn(9, 8), torch.arange(9)
    scores = [
        rotated(query, positions + start) @ rotated(key, positions + start).T for start in (0, 500)
    ]
    torch.testing.assert_close(scores[1], scores[0], rtol=1e-3, atol=1e-3)
    assert not torch.allclose(scores[0], query @ key.T)


def test_it_is_full_attention_of_rotated_queries_and_keys() -> None:
    """Training and decoding rotate with the same positions."""
    torch.manual_seed(0)
    kernel = RotaryAttention(RotaryAttentionConfig(), d_k=4, d_v=4)
    query, key, value = torch.randn(3, 6, 2, 4)
    turned = [
        torch.stack([rotated(heads[i], torch.tensor(i)) for i in range(6)], 1)[None]
        for heads in (query, key)
    ]
    expected = F.scaled_dot_product_attention(*turned, value.transpose(0, 1), is_causal=True)[
        0
    ].transpose(0, 1)
    padded = AttentionMask(causal=True).attend(kernel, query[None], key[None], value[None])
    torch.testing.assert_close(padded[0], expected)
    past = Past(torch.empty(1, 2, 0, 4), torch.empty(1, 2, 0, 4))
    for i in range(6):
        new = (heads[i : i + 1] for heads in (query, key, value))
        torch.testing.assert_close(past.attend(kernel, *new), expected[i : i + 1])


def test_the_type_stays() -> None:
    assert rotated(torch.ones(2, 4, dtype=torch.bfloat16), torch.arange(2)).dtype == torch.bfloat16


def test_an_odd_width_is_refused() -> None:
    with pytest.raises(UsageError, match=r"--attention rotary.* 5; .*--d-k"):
        RotaryAttention(RotaryAttentionConfig(), d_k=5, d_v=4)
