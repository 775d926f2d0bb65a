"""Full and multi-head attention against PyTorch's, and attention masks."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from nmt_cli.errors import UsageError
from nmt_cli.layers.attention import AttentionMask, FullAttention, MultiHeadAttention, Recorded

B, H, WIDTH = 3, 2, 4
PADDING = torch.arange(8)[None] >= torch.tensor([8, 3, 5])[:, None]


def drawn(n: int) -> list[torch.Tensor]:
    random = torch.Generator().manual_seed(0)
    return [torch.randn(B, H, n, WIDTH, generator=random) for _ in range(3)]


def test_full_attention_agrees_with_pytorch() -> None:
    query, key, value = drawn(8)
    causal = torch.ones(8, 8).tril().bool()
    for mask, expected_mask in (
        (AttentionMask(), None),
        (AttentionMask(PADDING), ~PADDING[:, None, None, :]),
        (AttentionMask(causal=True), causal),
        (AttentionMask(PADDING, causal=True), ~PADDING[:, None, None, :] & causal),
    ):
        expected = F.scaled_dot_product_attention(query, key, value, expected_mask)
        torch.testing.assert_close(
            FullAttention()(query, key, value, mask), expected, rtol=1e-5, atol=1e-6
        )


def test_several_queries_after_a_prefix() -> None:
    query, key, value = drawn(10)
    whole = FullAttention()(query, key, value, AttentionMask(causal=True))
    later = FullAttention()(query[:, :, 6:], key, value, AttentionMask(causal=True, offset=6))
    torch.testing.assert_close(later, whole[:, :, 6:])


def test_multi_head_attention_agrees_with_pytorch() -> None:
    """Also the weights that are recorded."""
    torch.manual_seed(2)
    our_attention = MultiHeadAttention(8, 2, 4, 4, FullAttention(), cross=True)
    x, context = torch.randn(2, 3, 8), torch.randn(2, 5, 8)
    padding = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    packed = torch.cat(
        [our_attention.w_q.weight, our_attention.w_k.weight, our_attention.w_v.weight]
    )
    their_output, weights = F.multi_head_attention_forward(
        x.transpose(0, 1),
        context.transpose(0, 1),
        context.transpose(0, 1),
        8,
        2,
        packed,
        None,
        None,
        None,
        False,
        0.0,
        our_attention.w_o.weight,
        None,
        key_padding_mask=padding,
        average_attn_weights=False,
    )
    mask = Recorded(padding)
    torch.testing.assert_close(our_attention(x, context, mask), their_output.transpose(0, 1))
    torch.testing.assert_close(mask.weights, [weights])


@pytest.mark.parametrize("size", [1.0, 100.0])
def test_scores_of_normalised_queries_and_keys_are_cosines(size: float) -> None:
    """Times sqrt(d_k), for each head, whatever the size of what they are made of. Values stay."""
    torch.manual_seed(2)
    attention = MultiHeadAttention(8, 2, 4, 4, FullAttention(), cross=True, normalised=True)
    x, context = torch.randn(3, 8) * size, torch.randn(5, 8) * size
    plain = [
        linear(rows).view(-1, 2, 4)
        for linear, rows in ((attention.w_q, x), (attention.w_k, context))
    ]
    cosines = F.cosine_similarity(plain[0][:, None], plain[1][None], dim=3)  # [T, S, H]
    mask = Recorded()
    attention(x[None], context[None], mask)
    expected = (2 * cosines).softmax(1).permute(2, 0, 1)
    torch.testing.assert_close(mask.weights[0][0], expected, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(
        attention.heads(context, "v")[0], attention.w_v(context).view(-1, 2, 4)
    )


def test_scale_is_the_keys_width_not_the_values() -> None:
    query = torch.tensor([math.log(2) * 3.0] + [0.0] * 8).view(1, 1, 1, 9)
    key = torch.eye(9)[:2].view(1, 1, 2, 9)
    value = torch.tensor([[3.0] * 4, [0.0] * 4]).view(1, 1, 2, 4)
    torch.testing.assert_close(
        FullAttention()(query, key, value, AttentionMask()), torch.full((1, 1, 1, 4), 2.0)
    )


def test_allowed_combines_padding_and_position() -> None:
    query, key, _ = drawn(8)
    assert AttentionMask().allowed(query, key) is None
    # A decoding step.
    assert AttentionMask(causal=True, offset=7).allowed(query[:, :, :1], key) is None
    allowed = AttentionMask(PADDING, causal=True, offset=5).allowed(query[:, :, :3], key)
    assert allowed is not None
    for b, t, s in ((b, t, s) for b in range(B) for t in range(3) for s in range(8)):
        assert allowed[b, 0, t, s] == (not PADDING[b, s] and s <= 5 + t)


def test_a_kernel_whose_output_has_another_shape_is_named() -> None:
    class Summing(FullAttention):
        def forward(self, *inputs: Any) -> torch.Tensor:
            return super().forward(*inputs).sum(2)

    attention = MultiHeadAttention(8, 2, 4, 4, Summing())
    x = torch.zeros(2, 3, 8)
    with pytest.raises(UsageError, match=r"Summing .*\[2, 2, 4\].*\[2, 2, 3, 4\]"):
        attention(x, x, AttentionMask())
