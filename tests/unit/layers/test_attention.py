"""The kernels: restricted attention against full attention under a band mask, and what both do at their edges."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from nmt_cli.layers.attention import (
    FullAttention,
    Kernel,
    MultiHeadAttention,
    Places,
    RestrictedAttention,
    RestrictedAttentionConfig,
)

B, H, WIDTH = 3, 2, 4


def restricted(r: int, dropout: float = 0.0) -> RestrictedAttention:
    return RestrictedAttention(RestrictedAttentionConfig(neighbourhood=r), dropout=dropout)


def drawn(n: int, seed: int = 0) -> list[Tensor]:
    """Queries, keys and values that want gradients."""
    random = torch.Generator().manual_seed(seed)
    return [torch.randn(B, H, n, WIDTH, generator=random, requires_grad=True) for _ in range(3)]


def padding_of(lengths: list[int], n: int) -> Tensor:
    return torch.arange(n)[None] >= torch.tensor(lengths)[:, None]


def banded(query: Tensor, key: Tensor, value: Tensor, r: int, places: Places) -> tuple[Tensor, Tensor]:
    """PyTorch's attention where a query sees at most r / 2 positions to either side; and who sees anything at all."""
    n = query.size(2)
    distance = torch.arange(n)[:, None] - torch.arange(n)
    seen = (distance.abs() <= r // 2)[None, None].expand(B, 1, n, n)
    if places.causal:
        seen = seen & (distance >= 0)
    if places.padding is not None:
        seen = seen & ~places.padding[:, None, None, :]
    some = seen.any(-1, keepdim=True)  # [B, 1, n, 1]: PyTorch gives NaN to a query that sees nothing
    out = F.scaled_dot_product_attention(query, key, value, seen | ~some)
    return out * some, some


@settings(max_examples=60, deadline=None)
@given(
    n=st.integers(1, 23),
    r=st.sampled_from([2, 3, 4, 6, 8, 10, 46]),
    causal=st.booleans(),
    lengths=st.none() | st.lists(st.integers(1, 23), min_size=B, max_size=B),
    seed=st.integers(0, 100),
)
def test_restricted_is_full_attention_with_a_band_mask(
    n: int, r: int, causal: bool, lengths: list[int] | None, seed: int
) -> None:
    """Outputs and gradients; lengths are rarely multiples of the blocks, and padding may hide whole neighbourhoods."""
    places = Places(None if lengths is None else padding_of(lengths, n), causal)
    ours, theirs = drawn(n, seed), drawn(n, seed)
    out = restricted(r)(*ours, places)
    expected, _ = banded(*theirs, r, places)
    torch.testing.assert_close(out, expected, rtol=1e-4, atol=1e-5)
    weight = torch.randn(out.shape, generator=torch.Generator().manual_seed(seed))
    (out * weight).sum().backward()
    (expected * weight).sum().backward()
    for mine, reference in zip(ours, theirs, strict=True):
        assert mine.grad is not None
        torch.testing.assert_close(mine.grad, reference.grad, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("n", [1, 5, 9])
def test_a_neighbourhood_of_twice_the_length_is_everything(n: int, causal: bool) -> None:
    query, key, value = drawn(n)
    places = Places(padding_of([n, max(1, n - 2), 1], n), causal)
    out = restricted(2 * n)(query, key, value, places)
    torch.testing.assert_close(out, FullAttention()(query, key, value, places))


@pytest.mark.parametrize("r", [2, 3, 6, 40])
@pytest.mark.parametrize("kind", ["full", "restricted"])
def test_a_decoding_step_is_the_last_row_of_the_causal_pass(kind: str, r: int) -> None:
    kernel: Kernel = restricted(r) if kind == "restricted" else FullAttention()
    query, key, value = drawn(17)
    whole = kernel(query, key, value, Places(causal=True))
    for t in range(17):
        step = kernel(query[:, :, t : t + 1], key[:, :, : t + 1], value[:, :, : t + 1], Places(causal=True, offset=t))
        torch.testing.assert_close(step, whole[:, :, t : t + 1], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kernel", [FullAttention(), restricted(4)], ids=["full", "restricted"])
@pytest.mark.parametrize("causal", [False, True])
def test_weights_are_what_the_kernel_uses(kernel: Kernel, causal: bool) -> None:
    query, key, value = drawn(9)
    places = Places(padding_of([9, 6, 8], 9), causal)
    weights = kernel.weights(query, key, places)
    assert weights.shape == (B, H, 9, 9)
    torch.testing.assert_close(weights @ value, kernel(query, key, value, places), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(weights[0].sum(-1), torch.ones(H, 9))
    assert (weights[1, :, :, 6:] == 0).all()


@pytest.mark.parametrize(
    "kernel", [FullAttention(dropout=0.5), restricted(30, dropout=0.5)], ids=["full", "restricted"]
)
def test_dropout_falls_on_the_weights(kernel: FullAttention | RestrictedAttention) -> None:
    """With values of one, an output is the sum of the kept weights, doubled; without training nothing is dropped."""
    torch.manual_seed(0)
    query, key, _ = drawn(12)
    ones = torch.ones(B, H, 12, 1)
    kernel.train()
    sums = kernel(query, key, ones, Places())
    assert sums.std() > 0.1
    assert sums.mean().item() == pytest.approx(1.0, abs=0.15)
    kernel.eval()
    torch.testing.assert_close(kernel(query, key, ones, Places()), torch.ones_like(sums))


@pytest.mark.parametrize("kernel", [FullAttention(dropout=0.5), restricted(4, dropout=0.5)], ids=["full", "restricted"])
def test_dropout_falls_on_sentences_of_one_word_too(kernel: FullAttention | RestrictedAttention) -> None:
    torch.manual_seed(0)
    query = torch.zeros(200, 1, 1, 1)
    kernel.train()
    assert set(kernel(query, query, torch.ones_like(query), Places()).flatten().tolist()) == {0.0, 2.0}


def test_full_attention_agrees_with_pytorch() -> None:
    query, key, value = drawn(8)
    padding = padding_of([8, 3, 5], 8)
    for places, mask in (
        (Places(), None),
        (Places(padding), ~padding[:, None, None, :]),
        (Places(causal=True), torch.ones(8, 8).tril().bool()),
        (Places(padding, causal=True), ~padding[:, None, None, :] & torch.ones(8, 8).tril().bool()),
    ):
        expected = F.scaled_dot_product_attention(query, key, value, mask)
        torch.testing.assert_close(FullAttention()(query, key, value, places), expected, rtol=1e-5, atol=1e-6)


def test_several_queries_after_a_prefix() -> None:
    """Positions offset .. offset + T - 1 over all keys so far: what the causal mask must know."""
    query, key, value = drawn(10)
    whole = FullAttention()(query, key, value, Places(causal=True))
    later = FullAttention()(query[:, :, 6:], key, value, Places(causal=True, offset=6))
    torch.testing.assert_close(later, whole[:, :, 6:])


def test_large_scores_stay_finite() -> None:
    """Softmax of scores in the thousands is a choice, not an overflow."""
    query = torch.full((1, 1, 2, 4), 100.0)
    key = torch.stack([torch.full((4,), 100.0), torch.full((4,), -100.0)])[None, None]
    value = torch.tensor([[1.0], [5.0]])[None, None]
    for kernel in (FullAttention(), restricted(8)):
        assert kernel(query, key, value, Places()).flatten().tolist() == [1.0, 1.0]


def test_recorded_weights() -> None:
    attention = MultiHeadAttention(8, 2, 4, 4, FullAttention())
    x = torch.randn(1, 3, 8)
    attention(x, x, Places())
    attention.recorded = []
    attention(x, x, Places())
    (weights,) = attention.recorded
    assert weights.shape == (1, 2, 3, 3)
    torch.testing.assert_close(weights.sum(-1), torch.ones(1, 2, 3))


def test_multi_head_attention_agrees_with_pytorch() -> None:
    torch.manual_seed(2)
    ours = MultiHeadAttention(8, 2, 4, 4, FullAttention())
    x, memory = torch.randn(2, 3, 8), torch.randn(2, 5, 8)
    padding = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    packed = torch.cat([ours.w_q.weight, ours.w_k.weight, ours.w_v.weight])
    theirs, weights = F.multi_head_attention_forward(
        x.transpose(0, 1), memory.transpose(0, 1), memory.transpose(0, 1), 8, 2, packed, None, None, None, False, 0.0,
        ours.w_o.weight, None, key_padding_mask=padding, average_attn_weights=False,
    )  # fmt: skip
    ours.recorded = []
    torch.testing.assert_close(ours(x, memory, Places(padding)), theirs.transpose(0, 1))
    torch.testing.assert_close(ours.recorded[0], weights)


def test_scale_is_the_keys_width_not_the_values() -> None:
    query = torch.tensor([math.log(2) * 3.0] + [0.0] * 8).view(1, 1, 1, 9)
    key = torch.eye(9)[:2].view(1, 1, 2, 9)
    value = torch.tensor([[3.0] * 4, [0.0] * 4]).view(1, 1, 2, 4)
    for kernel in (FullAttention(), restricted(8)):
        torch.testing.assert_close(kernel(query, key, value, Places()), torch.full((1, 1, 1, 4), 2.0))
