"""Relative positions against the equations of Shaw, Uszkoreit and Vaswani (2018), term by term."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from nmt_cli.annexes.later.relative_attention import RelativeAttention
from nmt_cli.annexes.later.settings import RelativeAttentionConfig
from nmt_cli.layers.attention import AttentionMask

B, H, N, D_K, D_V = 2, 3, 7, 4, 5


def relative(k: int) -> RelativeAttention:
    torch.manual_seed(0)
    return RelativeAttention(
        RelativeAttentionConfig(clipping_distance=k), d_k=D_K, d_v=D_V
    ).requires_grad_(False)


def drawn() -> tuple[Tensor, Tensor, Tensor]:
    random = torch.Generator().manual_seed(0)
    query, key = (torch.randn(B, H, N, D_K, generator=random) for _ in range(2))
    return query, key, torch.randn(B, H, N, D_V, generator=random)


def by_equations(
    kernel: RelativeAttention, k: int, *qkv: Tensor, causal: bool
) -> tuple[Tensor, Tensor]:
    """Equations 3 and 4, term by term.

    e_ij = q_i (k_j + a^K_ij)^T / sqrt(d_z) and z_i = sum over j of alpha_ij (v_j + a^V_ij).
    """
    query, key, value = qkv
    z, alpha = torch.zeros_like(value), torch.zeros(B, H, N, N)
    for b in range(B):
        for h in range(H):
            for i in range(N):
                keys = range(i + 1 if causal else N)
                places = [k + max(-k, min(k, j - i)) for j in keys]
                e = [
                    float(query[b, h, i] @ (key[b, h, j] + kernel.a_k[p])) / math.sqrt(D_K)
                    for j, p in zip(keys, places, strict=True)
                ]
                total = sum(map(math.exp, e))
                for j, p in zip(keys, places, strict=True):
                    alpha[b, h, i, j] = math.exp(e[j]) / total
                    z[b, h, i] += alpha[b, h, i, j] * (value[b, h, j] + kernel.a_v[p])
    return z, alpha


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("k", [0, 2, 20])
def test_equations_3_and_4(k: int, causal: bool) -> None:
    """The weights come from the keys alone: an identity matrix as values would not give them."""
    kernel, (query, key, value), mask = relative(k), drawn(), AttentionMask(causal=causal)
    z, alpha = by_equations(kernel, k, query, key, value, causal=causal)
    torch.testing.assert_close(kernel(query, key, value, mask), z, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(kernel.weights(query, key, mask), alpha, rtol=1e-4, atol=1e-5)


def test_every_position_of_the_table_learns_unless_it_is_out_of_reach() -> None:
    kernel = relative(2).requires_grad_(True)
    kernel(*drawn(), AttentionMask(causal=True)).square().sum().backward()
    for table in (kernel.a_k, kernel.a_v):
        assert table.grad is not None
        # The past, and itself.
        assert table.grad.abs().sum(1).bool().tolist() == [True, True, True, False, False]
