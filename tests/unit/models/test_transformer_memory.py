"""Memory counted from shapes, against the storages that autograd really keeps."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from nmt_cli import registry
from nmt_cli.layers.attention import FullAttentionConfig, RestrictedAttentionConfig
from nmt_cli.models.transformer import Transformer, TransformerConfig

TOLERANCE = 0.04
"""What is left out (ids, masks, means and deviations) weighs this much at these small widths; at d_model 64, 1 %."""

FULL, RESTRICTED = FullAttentionConfig(), RestrictedAttentionConfig(8)
SIZES = [(3, 11, 9), (2, 60, 50)]


def made(attention: object, **fields: Any) -> Transformer:
    registry.discover()
    small = {"num_layers": 2, "d_model": 16, "d_ff": 24, "num_heads": 2, "d_k": 6, "d_v": 10}
    return Transformer(
        TransformerConfig(**{**small, **fields}),
        attention=attention,
        source_vocabulary_size=30,
        target_vocabulary_size=30,
        shared_vocabulary=True,
    )


def kept(model: Transformer, sizes: tuple[int, int, int], low: bool = False) -> int:
    """Bytes of all storages that a forward pass keeps for its backward pass, the parameters' own left out."""
    sentences, *lengths = sizes
    source, target = (torch.full((sentences, length), 7) for length in lengths)
    own = {tensor.untyped_storage().data_ptr() for tensor in [*model.parameters(), *model.buffers()]}
    storages: dict[int, torch.UntypedStorage] = {}

    def keep(tensor: Tensor) -> Tensor:
        storages[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage()
        return tensor

    hooks = torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor)
    with hooks, torch.autocast("cpu", torch.bfloat16, enabled=low):
        features = model.features(source, target)
    assert features.requires_grad
    return sum(storage.nbytes() for place, storage in storages.items() if place not in own)


def estimated(model: Transformer, sizes: tuple[int, int, int], low: bool = False, on_gpu: bool = False) -> int:
    return sum(model.training_memory(*sizes, low=low, on_gpu=on_gpu).values())


def close(model: Transformer, sizes: tuple[int, int, int], low: bool = False, tolerance: float = TOLERANCE) -> None:
    really = kept(model, sizes, low)
    assert (1 - tolerance) * really <= estimated(model, sizes, low) <= really


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("attention", [FULL, RESTRICTED, RestrictedAttentionConfig(5)], ids=["full", "r8", "r5"])
@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"dropout": 0.0},
        {"attention_dropout": 0.1, "feed_forward_dropout": 0.1},
        {"positions": "learned"},
        {"norm": "pre"},
    ],
    ids=["paper", "no dropout", "dropout everywhere", "learned positions", "pre-norm"],
)
def test_what_autograd_keeps(attention: object, sizes: tuple[int, int, int], fields: dict[str, Any]) -> None:
    """A pre-norm model keeps one normalisation's input more, which the estimate leaves out."""
    close(made(attention, **fields), sizes, tolerance=0.08 if fields.get("norm") == "pre" else TOLERANCE)


@pytest.mark.parametrize("attention", [FULL, RESTRICTED], ids=["full", "r8"])
def test_what_autograd_keeps_in_bfloat16(attention: object) -> None:
    close(made(attention), (2, 60, 50), low=True, tolerance=0.05)


@pytest.mark.parametrize("low", [False, True])
@pytest.mark.parametrize("attention", [FULL, RESTRICTED], ids=["full", "r8"])
def test_closer_at_an_ordinary_width(attention: object, low: bool) -> None:
    close(made(attention, d_model=64, d_ff=256, num_heads=4, d_k=16, d_v=16), (2, 60, 50), low, tolerance=0.01)


def test_vocabulary_and_tables_of_positions_are_no_products() -> None:
    """Neither a width that equals V, nor a source embedding or a table of its own, changes what passes."""
    registry.discover()
    plain = made(FULL).training_memory(3, 11, 9, low=False, on_gpu=False)
    config = TransformerConfig(
        num_layers=2, d_model=16, d_ff=24, num_heads=2, d_k=6, d_v=10, positions="learned", max_positions=5000
    )
    other = Transformer(
        config, attention=FULL, source_vocabulary_size=900, target_vocabulary_size=24, shared_vocabulary=False
    )
    assert other.training_memory(3, 11, 9, low=False, on_gpu=False) == plain


def test_full_attention_grows_with_the_square_of_the_length_and_restricted_does_not() -> None:
    def attention(config: object, length: int) -> int:
        return made(config).training_memory(1, length, 1, low=False, on_gpu=False)["encoder attention"]

    heads, layers = 2, 2
    weights = [layers * heads * 4 * length**2 for length in (400, 800)]
    assert attention(FULL, 800) - weights[1] == 2 * (attention(FULL, 400) - weights[0])
    assert attention(RESTRICTED, 800) == 2 * attention(RESTRICTED, 400) < attention(FULL, 800)


def test_on_a_gpu_masks_take_a_byte_and_full_attention_keeps_no_weights() -> None:
    """By hand, for one encoder layer on one sentence of ten tokens; d = 16, h = 2, d_k = 6, d_v = 10."""
    found = made(FULL, num_layers=1).training_memory(1, 10, 1, low=False, on_gpu=True)
    assert found["embeddings"] == 11 * 16
    assert found["encoder projections"] == 10 * (16 * (4 + 1) + 4 * 16 + 4 * 2 * 10)
    assert found["encoder attention"] == 10 * 2 * (4 * (6 + 6 + 10) + 4)
    assert found["encoder feed-forward"] == 10 * (16 * (4 + 1) + 4 * 16 + 4 * 24)
    dropped = made(FULL, num_layers=1, attention_dropout=0.1, feed_forward_dropout=0.1)
    found_dropped = dropped.training_memory(1, 10, 1, low=False, on_gpu=True)
    assert found_dropped["encoder attention"] == found["encoder attention"]
    assert found_dropped["encoder feed-forward"] == found["encoder feed-forward"] + 10 * 24 * (1 + 4)


def test_restricted_attention_on_a_gpu_keeps_its_softmax_in_float32() -> None:
    model = made(RESTRICTED, num_layers=1)
    found = model.training_memory(1, 8, 1, low=True, on_gpu=True)["encoder attention"]
    assert found == 2 * (8 * (4 * 6 + 3 * 10) * 2 + 8 * 12 * (4 + 2))
