"""Sections 4 and 7, Table 1: the complexity of self-attention, counted, and its restricted form."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from nmt_cli.annexes.later.restricted_attention import RestrictedAttention
from nmt_cli.annexes.later.settings import RestrictedAttentionConfig
from nmt_cli.layers.attention import AttentionMask, FullAttention, Kernel


def restricted(r: int) -> RestrictedAttention:
    return RestrictedAttention(RestrictedAttentionConfig(neighbourhood=r))


EVERYWHERE = AttentionMask()


def multiply_adds(
    kernel: Kernel, n: int, d: int, mask: AttentionMask = EVERYWHERE, queries: int | None = None
) -> int:
    """Of one head of width d over n positions. A multiply-add is two operations to the counter."""
    query = torch.zeros(1, 1, queries or n, d)
    key = torch.zeros(1, 1, n, d)
    value = torch.zeros(1, 1, n, d)
    with FlopCounterMode(display=False) as counter:
        kernel(query, key, value, mask)
    total: int = counter.get_total_flops()
    assert total > 0
    return total // 2


@pytest.mark.parametrize(("n", "d"), [(64, 8), (256, 16)])
def test_full_self_attention_is_n_squared_d(n: int, d: int) -> None:
    """Q K^T and the weights times V: n * n * d multiply-adds each."""
    assert multiply_adds(FullAttention(), n, d) == 2 * n * n * d


@pytest.mark.parametrize("r", [8, 16])
def test_restricted_self_attention_is_r_n_d(r: int) -> None:
    counts = {n: multiply_adds(restricted(r), n, 8) for n in (64, 128, 256, 512)}
    assert counts[128] == 2 * counts[64]
    assert counts[256] == 2 * counts[128]
    assert counts[512] == 2 * counts[256]
    assert (
        counts[512]
        == multiply_adds(restricted(2 * r), 512, 8) / 2
        == multiply_adds(restricted(r), 512, 16) / 2
    )
    # The constant: three blocks of r / 2 keys for each query, twice.
    assert counts[512] <= 3 * r * 512 * 8


def test_a_decoding_step_costs_the_neighbourhood_and_not_the_prefix() -> None:
    def step(kernel: Kernel, prefix: int) -> int:
        return multiply_adds(
            kernel, prefix, 8, AttentionMask(causal=True, offset=prefix - 1), queries=1
        )

    assert step(FullAttention(), 400) == 4 * step(FullAttention(), 100)
    assert step(restricted(16), 400) == step(restricted(16), 100)


def reach(kernel: Kernel, n: int, layers: int) -> Tensor:
    """[n, n]: whether output i depends on input j after so many layers, by the gradient."""

    def stack(x: Tensor) -> Tensor:
        for _ in range(layers):
            x = x + kernel(x, x, x, EVERYWHERE)
        return x[0, 0].sum(-1)

    x = torch.randn(1, 1, n, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    jacobian = torch.autograd.functional.jacobian(stack, x)
    assert isinstance(jacobian, Tensor)
    return jacobian[:, 0, 0].abs().sum(-1) > 0


def test_path_of_full_self_attention_is_one_layer() -> None:
    assert reach(FullAttention(), 20, layers=1).all()


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_path_of_restricted_self_attention_grows_as_n_over_r(layers: int) -> None:
    """Each layer carries r / 2 positions further to either side."""
    distance = (torch.arange(20)[:, None] - torch.arange(20)).abs()
    assert torch.equal(reach(restricted(6), 20, layers), distance <= 3 * layers)
