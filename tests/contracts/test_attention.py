"""Every registered attention kernel: a weighted mean of the values of the allowed keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from nmt_cli import registry
from nmt_cli.layers.attention import AttentionMask

B, H, N, D_K, D_V = 3, 2, 9, 4, 6
PADDING = torch.arange(N)[None] >= torch.tensor([9, 6, 8])[:, None]


@pytest.fixture(params=registry.names("attention"))
def make_kernel(
    request: pytest.FixtureRequest, make_config: Callable[..., Any]
) -> Callable[..., Any]:
    def make(dropout: float = 0.0, d_k: int = D_K, d_v: int = D_V) -> Any:
        torch.manual_seed(0)
        return registry.build(
            make_config("attention", request.param), dropout=dropout, d_k=d_k, d_v=d_v
        )

    return make


def drawn() -> tuple[Tensor, Tensor, Tensor]:
    random = torch.Generator().manual_seed(0)
    query, key = (torch.randn(B, H, N, D_K, generator=random) for _ in range(2))
    return query, key, torch.randn(B, H, N, D_V, generator=random)


def part_of_values(
    kernel: Any, query: Tensor, key: Tensor, value: Tensor, mask: AttentionMask
) -> Tensor:
    """What the values add to the output, under the same dropout."""
    outputs = []
    for part in (value, torch.zeros_like(value)):
        torch.manual_seed(0)
        outputs.append(kernel(query, key, part, mask))
    return outputs[0] - outputs[1]


@pytest.mark.parametrize(
    ("padding", "causal"), [(None, False), (PADDING, True)], ids=["plain", "masked"]
)
@torch.no_grad()
def test_the_output_has_a_weighted_mean_of_the_allowed_values(
    make_kernel: Callable[..., Any], padding: Tensor | None, causal: bool
) -> None:
    """`nmt attention` shows these weights."""
    mask, kernel = AttentionMask(padding, causal), make_kernel()
    query, key, value = drawn()
    weights = kernel.weights(query, key, mask)
    output = part_of_values(kernel, query, key, value, mask)
    torch.testing.assert_close(output, weights @ value, rtol=1e-4, atol=1e-5)
    allowed = mask.allowed(query, key)
    if allowed is not None:
        assert not weights[~allowed.expand_as(weights)].any()
    sums = (
        weights.sum(-1) if padding is None else weights.sum(-1)[~padding[:, None].expand(B, H, N)]
    )
    torch.testing.assert_close(sums, torch.ones_like(sums))


def test_a_decoding_step_is_the_last_row_of_the_causal_pass(
    make_kernel: Callable[..., Any],
) -> None:
    kernel, (query, key, value) = make_kernel(), drawn()
    whole = kernel(query, key, value, AttentionMask(causal=True))
    for t in range(N):
        mask = AttentionMask(causal=True, offset=t)
        step = kernel(query[:, :, t : t + 1], key[:, :, : t + 1], value[:, :, : t + 1], mask)
        torch.testing.assert_close(step, whole[:, :, t : t + 1], rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_dropout_falls_on_the_weights(make_kernel: Callable[..., Any]) -> None:
    kernel = make_kernel(dropout=0.5, d_k=2, d_v=1)
    query, ones = torch.zeros(200, 1, N, 2), torch.ones(200, 1, N, 1)
    kernel.train()
    sums = part_of_values(kernel, query, query, ones, AttentionMask())
    assert sums.std() > 0.1
    assert sums.mean().item() == pytest.approx(1.0, abs=0.15)
    kernel.eval()
    torch.testing.assert_close(part_of_values(kernel, query, query, ones, AttentionMask()), ones)


def test_large_scores_stay_finite(make_kernel: Callable[..., Any]) -> None:
    query = torch.full((1, 1, 2, 4), 100.0)
    key = torch.stack([torch.full((4,), 100.0), torch.full((4,), -100.0)])[None, None]
    value = torch.tensor([[1.0], [5.0]])[None, None]
    assert make_kernel(d_v=1)(query, key, value, AttentionMask()).isfinite().all()


def test_it_counts_its_operations(make_kernel: Callable[..., Any]) -> None:
    """More for longer sentences and wider heads. Those of two sentences add up."""
    kernel, lengths = make_kernel(), np.array([5, 9])
    both, *one_by_one = (
        kernel.flops(some, D_K + D_V) for some in (lengths, lengths[:1], lengths[1:])
    )
    assert 0 < one_by_one[0] < one_by_one[1]
    assert both == sum(one_by_one)
    assert kernel.flops(lengths, 2 * (D_K + D_V)) == 2 * both


@pytest.mark.parametrize("causal", [False, True])
@torch.no_grad()
def test_the_window_says_what_is_computed(make_kernel: Callable[..., Any], causal: bool) -> None:
    """Decoding and GPUs compute softmax attention of a known window by other means."""
    mask, kernel = AttentionMask(PADDING, causal), make_kernel()
    if kernel.window is None:
        return
    query, key, value = drawn()
    distances = mask.distances(query, key)
    seen = mask.allowed(query, key) & (
        distances.abs() <= (N if kernel.window == -1 else kernel.window)
    )
    weights = (query @ key.mT / D_K**0.5).masked_fill(~seen, -torch.inf).softmax(-1)
    output, real = kernel(query, key, value, mask), ~PADDING[:, None].expand(B, H, N)
    torch.testing.assert_close(output[real], (weights @ value)[real], rtol=1e-4, atol=1e-5)
