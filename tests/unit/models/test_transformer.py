"""Widths of heads, initialisation, the decoder state and the choice of kernels."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from nmt_cli import registry
from nmt_cli.errors import UsageError
from nmt_cli.layers.attention import FullAttentionConfig
from nmt_cli.layers.restricted_attention import RestrictedAttention, RestrictedAttentionConfig
from nmt_cli.models.transformer import Transformer, TransformerConfig

SOURCE = torch.tensor([[5, 6, 7, 8, 3], [9, 3, 0, 0, 0]])
TARGET = torch.tensor([[2, 10, 11], [2, 12, 13]])


def made(attention: Any = None, **fields: Any) -> Transformer:
    registry.discover()
    torch.manual_seed(0)
    config = TransformerConfig(**{"num_layers": 2, "d_model": 8, "d_ff": 12, "num_heads": 2, "dropout": 0.0, **fields})
    return Transformer(
        config,
        attention=attention or FullAttentionConfig(),
        source_vocabulary_size=20,
        target_vocabulary_size=20,
        shared_vocabulary=True,
    )


@pytest.mark.parametrize("fields", [{"num_heads": 7}, {"num_heads": 7, "d_k": 4}, {"num_heads": 7, "d_v": 4}])
def test_heads_that_do_not_divide_the_width_are_refused(fields: dict[str, int]) -> None:
    with pytest.raises(UsageError, match=r"--num-heads 7 does not divide --d-model 512.*--d-k and --d-v"):
        made(d_model=512, **fields)


def test_widths_reach_the_matrices() -> None:
    attention = made(d_k=3, d_v=5).encoder[0].self_attention
    shapes = [tuple(w.weight.shape) for w in (attention.w_q, attention.w_k, attention.w_v, attention.w_o)]
    assert shapes == [(6, 8), (6, 8), (10, 8), (8, 10)]


def test_both_self_attentions_use_the_chosen_kernel_and_cross_attention_is_full() -> None:
    model = made(RestrictedAttentionConfig(neighbourhood=2))
    for stack in (model.encoder, model.decoder):
        assert all(isinstance(layer.self_attention.kernel, RestrictedAttention) for layer in stack)
    weights = model.attention_weights(SOURCE[:1], TARGET[:1])
    assert (weights["cross"] > 0).all()
    assert (weights["encoder"][:, :, 0, 2:] == 0).all()
    assert (weights["decoder"][:, :, 2, 0] == 0).all()


def bound_of(name: str, shape: torch.Size) -> float:
    """Attention: Glorot's, with queries, keys and values as one matrix; feed-forward: PyTorch's own."""
    outputs, inputs = shape
    if "feed_forward" in name:
        return float(inputs**-0.5)
    return float((6 / (inputs + outputs * (1 if "w_o" in name else 3))) ** 0.5)


def test_matrices_start_uniform_norms_at_one_and_biases_at_zero() -> None:
    model = made(d_model=64, d_ff=256, num_heads=4)
    for name, parameter in model.named_parameters():
        if "embedding" in name:
            continue
        if "norm" in name:
            assert (parameter == (1.0 if name.endswith("weight") else 0.0)).all()
        elif parameter.dim() == 1:
            assert not parameter.any()
        else:
            bound = bound_of(name, parameter.shape)
            assert 0.99 * bound < parameter.abs().max().item() <= bound, name
            assert parameter.std().item() == pytest.approx(bound / 3**0.5, rel=0.05), name


def test_learned_positions_are_one_table_a_side() -> None:
    plain, learned = (
        dict(made(positions=kind, max_positions=30).named_parameters()) for kind in ("sinusoidal", "learned")
    )
    assert learned.keys() - plain.keys() == {"source_positions.weight", "target_positions.weight"}
    assert learned["source_positions.weight"].shape == (30, 8)


@torch.no_grad()
def test_reordering_beams_copies_nothing_of_the_encoder() -> None:
    model = made().eval()
    state = model.start(SOURCE).select(torch.tensor([0, 0, 1, 1]))
    _, state = model.step(torch.tensor([2, 2, 2, 2]), state)
    reordered = state.select(torch.tensor([1, 0, 3, 3]))
    assert reordered.caches[0].source is state.caches[0].source
    moved = state.select(torch.tensor([2, 0, 1, 3]))
    assert torch.equal(moved.caches[0].source[0][0], state.caches[0].source[0][2])
    assert moved.sentences.tolist() == [1, 0, 0, 1]


@torch.no_grad()
def test_log_probabilities_are_float32_in_low_precision() -> None:
    model = made().eval()
    with torch.autocast("cpu", torch.bfloat16):
        log_probabilities, _ = model.step(TARGET[:, 0], model.start(SOURCE))
    assert log_probabilities.dtype == torch.float32
    torch.testing.assert_close(log_probabilities.exp().sum(-1), torch.ones(2))
    exact, _ = model.step(TARGET[:, 0], model.start(SOURCE))
    torch.testing.assert_close(log_probabilities, exact, atol=0.1, rtol=0)
