"""Operations counted from the configuration, against PyTorch's counter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from nmt_cli import registry
from nmt_cli.annexes.later.restricted_attention import RestrictedAttention
from nmt_cli.annexes.later.settings import RestrictedAttentionConfig
from nmt_cli.layers.attention import AttentionMask, FullAttention
from nmt_cli.layers.settings import FullAttentionConfig
from nmt_cli.models.settings import TransformerConfig
from nmt_cli.models.transformer import Transformer


def build(attention: object = None, **fields: Any) -> Transformer:
    registry.discover()
    small = {"num_layers": 2, "d_model": 16, "d_ff": 24, "num_heads": 2, "d_k": 6, "d_v": 10}
    return Transformer(
        TransformerConfig(**{**small, **fields}),
        attention=attention or FullAttentionConfig(),
        source_vocabulary_size=30,
        target_vocabulary_size=30,
        shared_vocabulary=True,
    )


def counted(model: Transformer, sentences: int, source: int, target: int) -> int:
    """The count is of a training step on sentences of equal lengths, so nothing is padded."""
    ids = [torch.full((sentences, length), 7) for length in (source, target)]
    with FlopCounterMode(display=False) as counter:
        model(*ids).sum().backward()
    total: int = counter.get_total_flops()
    return total


@pytest.mark.parametrize(("sentences", "source", "target"), [(1, 5, 9), (3, 12, 4), (2, 2, 2)])
@pytest.mark.parametrize("attention", ["full", "relative", "rotary", "alibi"])
def test_all_of_a_training_step(attention: str, sentences: int, source: int, target: int) -> None:
    """The count is exact: both count matrix products only, and no rows of zeros are added."""
    registry.discover()
    fields = {"rotary": {"gated_feed_forward": True}, "relative": {"num_decoder_layers": 3}}
    model = build(registry.find("attention", attention).config(), **fields.get(attention, {}))
    parts = model.training_flops(np.full(sentences, source), np.full(sentences, target))
    assert sum(parts.values()) == counted(model, sentences, source, target)


def test_base_model_by_hand() -> None:
    """The usual estimate 6 N D, for N weights in matrices, where attention's products are small."""
    model = build(num_layers=6, d_model=512, d_ff=2048, num_heads=8, d_k=64, d_v=64)
    parts = model.training_flops(np.array([10]), np.array([10]))
    layers = 6 * (4 * 512**2 + 2 * 512 * 2048) + 6 * (8 * 512**2 + 2 * 512 * 2048)
    outside_attention = sum(
        flops for part, flops in parts.items() if not part.endswith("attention")
    )
    assert outside_attention == 6 * 10 * (layers + 30 * 512)
    assert parts["encoder attention"] == 6 * 6 * 2 * 10 * 10 * 512


@pytest.mark.parametrize(("length", "expected"), [(3, 9), (5, 25), (6, 30), (100, 500)])
def test_pairs_within_a_neighbourhood(length: int, expected: int) -> None:
    """r = 4: a position attends to itself and to two on either side.

    Each pair costs a multiply-add of each width.
    """
    lengths = np.array([length])
    assert (
        RestrictedAttention(RestrictedAttentionConfig(4)).flops(lengths, width=7)
        == 2 * 7 * expected
    )
    assert FullAttention().flops(lengths, width=7) == 2 * 7 * length**2


def test_an_odd_neighbourhood_reaches_no_farther_than_the_even_one_below() -> None:
    """r = 5 is two positions to either side, as the kernel's weights show."""
    query, kernel = torch.zeros(1, 1, 20, 1), RestrictedAttention(RestrictedAttentionConfig(5))
    assert (kernel.weights(query, query, AttentionMask()) > 0).sum(-1).max() == 5
    assert kernel.flops(np.array([20]), width=1) == 2 * 100


def test_restricted_attention_costs_less_than_full_where_sentences_are_long() -> None:
    lengths = np.array([400])
    full, restricted = (
        build(a).training_flops(lengths, lengths) for a in (None, RestrictedAttentionConfig(8))
    )
    assert restricted["encoder attention"] * 400 == full["encoder attention"] * 9
    assert restricted["cross attention"] == full["cross attention"]
    assert torch.tensor([full[part] >= restricted[part] for part in full]).all()
