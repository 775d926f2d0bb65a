"""Layouts: attention over bins against the same heads over padded sentences."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nmt_cli.annexes.later.restricted_attention import RestrictedAttention
from nmt_cli.annexes.later.rotary_attention import RotaryAttention
from nmt_cli.annexes.later.settings import RestrictedAttentionConfig, RotaryAttentionConfig
from nmt_cli.fast.layout import Binned, layout_of
from nmt_cli.fast.packing import Bins, Packing
from nmt_cli.layers.attention import FullAttention, MultiHeadAttention

KERNELS = {
    "full": FullAttention(),
    "restricted": RestrictedAttention(RestrictedAttentionConfig(neighbourhood=4)),
    "rotary": RotaryAttention(RotaryAttentionConfig(), d_k=8, d_v=8),
}


def one_bin(lengths: list[int], width: int) -> Bins:
    """Return the sentences side by side in a bin, and an empty bin."""
    numbers = torch.zeros(2, width, dtype=torch.int64)
    positions = torch.zeros(2 * width, dtype=torch.int64)
    numbers[0, : sum(lengths)] = torch.repeat_interleave(
        torch.arange(1, len(lengths) + 1), torch.tensor(lengths)
    )
    positions[: sum(lengths)] = torch.cat([torch.arange(length) for length in lengths])
    return Bins(numbers, positions)


def padded(lengths: list[int]) -> Packing:
    return Packing.of(torch.arange(max(lengths)) < torch.tensor(lengths)[:, None])


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("causal", [False, True])
@given(lengths=st.lists(st.integers(1, 9), min_size=1, max_size=5))
@settings(max_examples=10)
def test_it_is_attention_within_each_sentence(
    kernel: str, causal: bool, lengths: list[int]
) -> None:
    """The outputs and the gradients of the real tokens. The filler is finite."""
    torch.manual_seed(0)
    attention, n = MultiHeadAttention(16, 2, 8, 8, KERNELS[kernel]), sum(lengths)
    x = torch.randn(128, 16, requires_grad=True)
    outputs = [attention(x, x, layout_of(one_bin(lengths, 64), one_bin(lengths, 64), causal))]
    rows = padded(lengths)
    outputs.append(
        attention(x[: len(rows.positions)], x[: len(rows.positions)], layout_of(rows, rows, causal))
    )
    torch.testing.assert_close(outputs[0][:n], outputs[1][:n], rtol=1e-4, atol=1e-5)
    assert outputs[0].isfinite().all()
    gradients = [torch.autograd.grad(output[:n].square().sum(), x)[0] for output in outputs]
    torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-3, atol=1e-5)


def test_it_attends_to_another_text() -> None:
    """Queries and keys have the same sentences in a bin, of other lengths.

    The keys may have no filler.
    """
    torch.manual_seed(0)
    attention = MultiHeadAttention(16, 2, 8, 8, FullAttention(), cross=True)
    x, context = torch.randn(2 * 9, 16), torch.randn(2 * 9, 16)
    layout = layout_of(one_bin([3, 1], 9), one_bin([2, 7], 9))
    output = attention(x, context, layout)
    rows = (
        torch.nn.functional.pad(x, (0, 0, 0, 64 - 18)),
        torch.nn.functional.pad(context, (0, 0, 0, 64 - 18)),
    )
    expected = attention(*rows, layout_of(padded([3, 1]), padded([2, 7])))
    torch.testing.assert_close(output[:4], expected[:4], rtol=1e-4, atol=1e-5)
    assert isinstance(layout, Binned)
    assert layout.allowed.any(-1).all()  # some kernels return NaN for a query without keys


def test_dropout_of_attention_weights_is_for_training() -> None:
    torch.manual_seed(0)
    attention = MultiHeadAttention(16, 2, 8, 8, FullAttention(dropout=0.5))
    x, layout = torch.randn(20, 16), layout_of(one_bin([4, 5], 10), one_bin([4, 5], 10))
    assert not torch.equal(attention(x, x, layout), attention(x, x, layout))
    attention.eval()
    assert torch.equal(attention(x, x, layout), attention(x, x, layout))
