"""Restricted attention against PyTorch's full attention under a band mask."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from nmt_cli.annexes.later.restricted_attention import RestrictedAttention
from nmt_cli.annexes.later.settings import RestrictedAttentionConfig
from nmt_cli.fast.layout import layout_of
from nmt_cli.fast.packing import Bins
from nmt_cli.layers.attention import AttentionMask

B, H, WIDTH = 3, 2, 4


def restricted(r: int) -> RestrictedAttention:
    return RestrictedAttention(RestrictedAttentionConfig(neighbourhood=r))


def drawn(n: int, seed: int = 0) -> list[Tensor]:
    random = torch.Generator().manual_seed(seed)
    return [torch.randn(B, H, n, WIDTH, generator=random, requires_grad=True) for _ in range(3)]


def padding_of(lengths: list[int], n: int) -> Tensor:
    return torch.arange(n)[None] >= torch.tensor(lengths)[:, None]


def banded(query: Tensor, key: Tensor, value: Tensor, r: int, mask: AttentionMask) -> Tensor:
    """PyTorch's attention over at most r / 2 positions to either side."""
    n = query.size(2)
    distance = torch.arange(n)[:, None] - torch.arange(n)
    allowed = (distance.abs() <= r // 2)[None, None].expand(B, 1, n, n)
    if mask.causal:
        allowed = allowed & (distance >= 0)
    if mask.padding is not None:
        allowed = allowed & ~mask.padding[:, None, None, :]
    some = allowed.any(-1, keepdim=True)  # PyTorch returns NaN for a query without keys
    return F.scaled_dot_product_attention(query, key, value, allowed | ~some) * some


@settings(max_examples=60)
@given(
    n=st.integers(1, 23),
    r=st.sampled_from([2, 3, 4, 6, 8, 10, 46]),
    causal=st.booleans(),
    lengths=st.none() | st.lists(st.integers(1, 23), min_size=B, max_size=B),
    seed=st.integers(0, 100),
)
def test_it_is_full_attention_with_a_band_mask(
    n: int, r: int, causal: bool, lengths: list[int] | None, seed: int
) -> None:
    """Outputs and gradients.

    Lengths are rarely multiples of the blocks, and padding may hide whole neighbourhoods.
    """
    mask = AttentionMask(None if lengths is None else padding_of(lengths, n), causal)
    our_inputs, their_inputs = drawn(n, seed), drawn(n, seed)
    out, expected = restricted(r)(*our_inputs, mask), banded(*their_inputs, r, mask)
    torch.testing.assert_close(out, expected, rtol=1e-4, atol=1e-5)
    weight = torch.randn(out.shape, generator=torch.Generator().manual_seed(seed))
    (out * weight).sum().backward()
    (expected * weight).sum().backward()
    for mine, reference in zip(our_inputs, their_inputs, strict=True):
        torch.testing.assert_close(mine.grad, reference.grad, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("r", [2, 3, 6, 40])
def test_a_decoding_step_is_the_last_row_of_the_causal_pass(r: int) -> None:
    kernel, (query, key, value) = restricted(r), drawn(17)
    whole = kernel(query, key, value, AttentionMask(causal=True))
    for t in range(17):
        mask = AttentionMask(causal=True, offset=t)
        step = kernel(query[:, :, t : t + 1], key[:, :, : t + 1], value[:, :, : t + 1], mask)
        torch.testing.assert_close(step, whole[:, :, t : t + 1], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("r", [2, 3, 6, 40])
@pytest.mark.parametrize("causal", [False, True])
def test_the_window_of_bins_is_as_wide(r: int, causal: bool) -> None:
    """In a bin, a mask of this width stands for `forward`."""
    kernel, qkv = restricted(r), drawn(17)
    bins = Bins(torch.ones(B, 17, dtype=torch.long), torch.arange(17).repeat(B))
    rows = [tensor.transpose(1, 2).flatten(0, 1) for tensor in qkv]  # [B * n, H, WIDTH]
    output = layout_of(bins, bins, causal).attend(kernel, *rows)
    expected = kernel(*qkv, AttentionMask(causal=causal)).transpose(1, 2).flatten(0, 1)
    torch.testing.assert_close(output, expected, rtol=1e-4, atol=1e-5)
