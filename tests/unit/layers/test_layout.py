"""Layouts: attention over packed rows against the same heads over padded sentences."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nmt_cli.layers.attention import FullAttention, MultiHeadAttention
from nmt_cli.layers.layout import VariableLength, layout_of
from nmt_cli.layers.restricted_attention import RestrictedAttention, RestrictedAttentionConfig
from nmt_cli.packing import Packing
from nmt_cli.positions.alibi_attention import AlibiAttention
from nmt_cli.positions.rotary_attention import RotaryAttention, RotaryAttentionConfig

pytestmark = pytest.mark.usefixtures("variable_length_kernel")

KERNELS = {
    "full": FullAttention(),
    "restricted": RestrictedAttention(RestrictedAttentionConfig(neighbourhood=4)),
    "rotary": RotaryAttention(RotaryAttentionConfig(), d_k=8, d_v=8),
}


def packed(lengths: list[int]) -> tuple[Packing, Packing]:
    """Return a packing with `starts`, and the same rows without."""
    packing = Packing.of_lengths(np.array(lengths), max(lengths), starts=True)
    return packing, replace(packing, starts=None)


@pytest.mark.parametrize(
    ("kernel", "causal"), [("full", False), ("full", True), ("restricted", True), ("rotary", True)]
)
@given(lengths=st.lists(st.integers(1, 9), min_size=1, max_size=5))
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_it_is_attention_within_each_sentence(kernel: str, causal: bool, lengths: list[int]) -> None:
    """The outputs and the gradients of the real tokens; the filler is finite."""
    torch.manual_seed(0)
    attention = MultiHeadAttention(16, 2, 8, 8, KERNELS[kernel])
    both = packed(lengths)
    x = torch.randn(len(both[0].positions), 16, requires_grad=True)
    outputs = [attention(x, x, layout_of(rows, rows, causal)) for rows in both]
    n = sum(lengths)
    torch.testing.assert_close(outputs[0][:n], outputs[1][:n], rtol=1e-4, atol=1e-5)
    assert outputs[0].isfinite().all()
    gradients = [torch.autograd.grad(output[:n].square().sum(), x)[0] for output in outputs]
    torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-3, atol=1e-5)


def test_it_attends_to_another_text() -> None:
    """Queries and keys have the same number of sentences, of other lengths, and other fillers."""
    torch.manual_seed(0)
    attention = MultiHeadAttention(16, 2, 8, 8, FullAttention(), cross=True)
    queries, keys = packed([3, 1]), packed([2, 7])
    x, context = torch.randn(len(queries[0].positions), 16), torch.randn(len(keys[0].positions), 16)
    ours, expected = (attention(x, context, layout_of(*both)) for both in zip(queries, keys, strict=True))
    torch.testing.assert_close(ours[:4], expected[:4], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "differs",
    [
        {"device": "cpu"},
        {"dtype": torch.float32},
        {"d_v": 8},
        {"d_k": 12, "d_v": 12},
        {"kernel": FullAttention(dropout=0.1)},
        {"kernel": AlibiAttention()},
        {"capability": (7, 5)},
    ],
)
def test_where_the_kernel_is_available(differs: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def available(device: str = "cuda", dtype: torch.dtype = torch.bfloat16, **changed: Any) -> bool:
        capability = changed.pop("capability", (9, 0))
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
        attention = MultiHeadAttention(8, 2, **{"d_k": 64, "d_v": 64, "kernel": FullAttention(), **changed})
        return VariableLength.available(attention, torch.device(device), dtype)

    assert available()
    assert not available(**differs)
