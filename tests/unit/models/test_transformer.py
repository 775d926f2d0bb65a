"""Widths of heads, initialisation and the choice of kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from nmt_cli.annexes.later.restricted_attention import RestrictedAttention
from nmt_cli.annexes.later.settings import RestrictedAttentionConfig
from nmt_cli.errors import UsageError
from nmt_cli.models.transformer import Transformer

SOURCE = torch.tensor([[5, 6, 7, 8, 3], [9, 3, 0, 0, 0]])
TARGET = torch.tensor([[2, 10, 11], [2, 12, 13]])


Build = Callable[..., Transformer]


@pytest.mark.parametrize(
    "fields", [{"num_heads": 7}, {"num_heads": 7, "d_k": 4}, {"num_heads": 7, "d_v": 4}]
)
def test_heads_that_do_not_divide_the_width_are_refused(
    build: Build, fields: dict[str, int]
) -> None:
    with pytest.raises(UsageError, match=r"--num-heads 7 .*512.*--d-k and --d-v"):
        build(d_model=512, **fields)


def test_widths_reach_the_matrices(build: Build) -> None:
    attention = build(d_k=3, d_v=5).encoder[0].self_attention
    shapes = [
        tuple(w.weight.shape) for w in (attention.w_q, attention.w_k, attention.w_v, attention.w_o)
    ]
    assert shapes == [(6, 8), (6, 8), (10, 8), (8, 10)]


def test_both_self_attentions_use_the_chosen_kernel_and_cross_attention_is_full(
    build: Build,
) -> None:
    model = build(RestrictedAttentionConfig(neighbourhood=2))
    for stack in (model.encoder, model.decoder):
        assert all(isinstance(layer.self_attention.kernel, RestrictedAttention) for layer in stack)
    weights = model.attention_weights(SOURCE[:1], TARGET[:1])
    assert (weights["cross"] > 0).all()
    assert (weights["encoder"][..., 0, 2:] == 0).all()
    assert (weights["decoder"][..., 2, 0] == 0).all()


def test_threads_may_ask_for_attention_weights_at_a_time(build: Build) -> None:
    """The second call comes while the first one is between two layers."""
    model = build().eval()
    expected = model.attention_weights(SOURCE[:1], TARGET[:1])

    def second(*_: Any) -> None:
        hook.remove()
        model.attention_weights(SOURCE[:1, 1:], TARGET[:1, 1:])

    hook = model.encoder[0].register_forward_hook(second)
    weights = model.attention_weights(SOURCE[:1], TARGET[:1])
    assert all(torch.equal(weights[kind], expected[kind]) for kind in expected)


def bound_of(name: str, shape: torch.Size) -> float:
    """Attention: Glorot's, with queries, keys and values as one matrix.

    Feed-forward: PyTorch's own.
    """
    outputs, inputs = shape
    if "feed_forward" in name:
        return float(inputs**-0.5)
    return float((6 / (inputs + outputs * (1 if "w_o" in name else 3))) ** 0.5)


def test_matrices_start_uniform_norms_at_one_and_biases_at_zero(build: Build) -> None:
    model = build(d_model=64, d_ff=256, num_heads=4, attention_biases=True, output_bias=True)
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


@pytest.mark.parametrize(("norm", "gated"), [("pre", False), ("post", True)])
def test_sub_layers_may_start_at_zero(build: Build, norm: str, gated: bool) -> None:
    """Then the source does not matter, nor other positions. Every other weight is as without."""
    plain, zero = (
        build(norm=norm, gated_feed_forward=gated, zero_sublayers=starts_at_zero).eval()
        for starts_at_zero in (False, True)
    )
    changed = {
        name
        for name, p in plain.named_parameters()
        if not torch.equal(p, dict(zero.named_parameters())[name])
    }
    outputs = {
        f"{name}.weight" for name, _ in plain.named_modules() if name.endswith((".w_o", ".outer"))
    }
    assert (changed, len(outputs)) == (outputs, 2 * 2 + 2 * 3)
    torch.testing.assert_close(zero(SOURCE, TARGET), zero(SOURCE.flip(0), TARGET))
    assert not torch.allclose(plain(SOURCE, TARGET), plain(SOURCE.flip(0), TARGET))


def test_biases_are_where_they_are_asked_for(build: Build) -> None:
    plain, biased, output = (
        dict(build(**fields).named_parameters()).keys()
        for fields in ({}, {"attention_biases": True}, {"output_bias": True})
    )
    attentions = [f"encoder.{n}.self_attention" for n in range(2)]
    attentions += [f"decoder.{n}.{kind}_attention" for n in range(2) for kind in ("self", "cross")]
    assert biased - plain == {
        f"{attention}.w_{letter}.bias" for attention in attentions for letter in "qkvo"
    }
    assert output - plain == {"output_bias"}


def test_learned_positions_are_one_table_a_side(build: Build) -> None:
    plain, learned = (
        dict(build(positions=kind, max_positions=30).named_parameters())
        for kind in ("sinusoidal", "learned")
    )
    assert learned.keys() - plain.keys() == {"source_positions.weight", "target_positions.weight"}
    assert learned["source_positions.weight"].shape == (30, 8)
