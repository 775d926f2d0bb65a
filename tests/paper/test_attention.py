"""Sections 3.2.1 to 3.2.3: scaled dot-product attention, multi-head attention, and masks."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nmt_cli.fast.layout import layout_of
from nmt_cli.fast.packing import Packing
from nmt_cli.layers.attention import AttentionMask, FullAttention, MultiHeadAttention

B, H, T, S, d_k, d_v = 2, 3, 5, 7, 4, 6


def draw(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def equation_1(
    query: Tensor, key: Tensor, value: Tensor, sees: Callable[[int, int, int], bool]
) -> np.ndarray[Any, Any]:
    """Softmax(Q K^T / sqrt(d_k)) V of each row, query by query, in float64."""
    q, k, v = (x.double().numpy() for x in (query, key, value))
    out = np.zeros((*q.shape[:3], v.shape[3]))
    for b, h, i in np.ndindex(*q.shape[:3]):
        seen = [j for j in range(k.shape[2]) if sees(b, i, j)]
        powers = [math.exp(float(q[b, h, i] @ k[b, h, j]) / math.sqrt(q.shape[3])) for j in seen]
        out[b, h, i] = sum(p * v[b, h, j] for p, j in zip(powers, seen, strict=True)) / sum(powers)
    return out


def test_equation_1() -> None:
    query, key, value = draw(B, H, T, d_k), draw(B, H, S, d_k), draw(B, H, S, d_v)
    out = FullAttention()(query, key, value, AttentionMask())
    np.testing.assert_allclose(out, equation_1(query, key, value, lambda b, i, j: True), atol=1e-6)


def test_padding_and_later_positions_are_masked() -> None:
    """Section 3.2.3: illegal connections are masked out, inside of the softmax."""
    query, key, value = draw(B, H, S, d_k), draw(B, H, S, d_k), draw(B, H, S, d_v)
    lengths = [4, 7]
    padding = torch.arange(S)[None] >= torch.tensor(lengths)[:, None]
    for causal in (False, True):
        out = FullAttention()(query, key, value, AttentionMask(padding, causal))
        expected = equation_1(
            query,
            key,
            value,
            lambda b, i, j: j < lengths[b] and (j <= i or not causal),  # noqa: B023
        )
        np.testing.assert_allclose(out, expected, atol=1e-6)


def test_heads_are_concatenated() -> None:
    """Section 3.2.2: head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V).

    Their concatenation is projected by W^O.
    """
    d_model = 10
    torch.manual_seed(1)
    attention = MultiHeadAttention(d_model, H, d_k, d_v, FullAttention(), cross=True)
    x, context = draw(B, T, d_model), draw(B, S, d_model)
    heads = []
    for h in range(H):
        w_q, w_k = (w.weight[h * d_k : (h + 1) * d_k] for w in (attention.w_q, attention.w_k))
        w_v = attention.w_v.weight[h * d_v : (h + 1) * d_v]
        scores = (x @ w_q.T) @ (context @ w_k.T).transpose(1, 2) / math.sqrt(d_k)
        heads.append(scores.softmax(-1) @ (context @ w_v.T))
    expected = torch.cat(heads, dim=-1) @ attention.w_o.weight.T
    queries, keys = (Packing.of(torch.ones(B, length, dtype=torch.bool)) for length in (T, S))
    output = attention(queries.pack(x), keys.pack(context), layout_of(queries, keys))
    torch.testing.assert_close(queries.unpack(output), expected)


def test_the_three_uses(transformer: Callable[..., Any]) -> None:
    """Section 3.2.3: the encoder attends to the source, the decoder to the source and its past."""
    model = transformer()
    source = torch.randint(4, 40, (1, 6), generator=torch.Generator().manual_seed(0))
    target = torch.randint(4, 40, (1, 5), generator=torch.Generator().manual_seed(1))
    seen = {name: weights > 0 for name, weights in model.attention_weights(source, target).items()}
    assert seen["encoder"].all()
    assert seen["cross"].all()
    assert torch.equal(seen["decoder"], torch.ones(5, 5).tril().bool().expand_as(seen["decoder"]))
