"""Embeddings and positions at their edges."""

from __future__ import annotations

import pytest
import torch

from nmt_cli.interfaces import PAD
from nmt_cli.layers.embedding import (
    Embedding,
    LearnedPositions,
    SinusoidalPositions,
    learned_positions,
    positional_encoding,
    sinusoids,
)


def test_padding_starts_at_zero_and_the_rest_at_unit_variance_once_scaled() -> None:
    torch.manual_seed(0)
    out = Embedding(2000, 64)(torch.arange(2000))
    assert not out[PAD].any()
    assert out[1:].std().item() == pytest.approx(1.0, abs=0.02)


@pytest.mark.parametrize("d_model", [3, 7])
def test_odd_widths(d_model: int) -> None:
    table = sinusoids(0, 4, d_model)
    assert table.shape == (4, d_model)
    assert table.isfinite().all()
    torch.testing.assert_close(table[:, 0], torch.arange(4).float().sin())


@pytest.mark.parametrize(
    "positions", [SinusoidalPositions(8), LearnedPositions(8, 40)], ids=["sinusoidal", "learned"]
)
def test_a_window_is_a_part_of_the_whole(positions: torch.nn.Module) -> None:
    whole = positions(0, 30)
    assert torch.equal(positions(11, 5), whole[11:16])
    assert positions(3, 0).shape == (0, 8)


def test_a_table_grown_in_inference_mode_serves_training() -> None:
    positions = SinusoidalPositions(8)
    with torch.inference_mode():
        positions(0, 1000)
    x = torch.zeros(1000, 8, requires_grad=True)
    (x * positions(0, 1000)).sum().backward()
    assert x.grad is not None


def test_learned_positions_past_the_table_use_its_last_row() -> None:
    positions = LearnedPositions(4, 6)
    rows = positions(4, 5)
    assert torch.equal(rows[:2], positions.weight[4:])
    assert torch.equal(rows[2:], positions.weight[5].expand(3, 4))


def test_the_limit_of_models_is_the_smallest_of_their_learned_positions() -> None:
    models = [
        torch.nn.ModuleList([SinusoidalPositions(4), LearnedPositions(4, count)])
        for count in (6, 5)
    ]
    assert learned_positions(*models) == 5
    assert learned_positions(models[0], SinusoidalPositions(4)) == 6
    assert learned_positions(SinusoidalPositions(4)) is learned_positions() is None


def test_learned_positions_learn() -> None:
    positions = LearnedPositions(4, 6)
    positions(1, 2).sum().backward()
    assert positions.weight.grad is not None
    assert positions.weight.grad.sum(-1).tolist() == [0, 4, 4, 0, 0, 0]


def test_encodings_by_name() -> None:
    sinusoidal, learned, none = (
        positional_encoding(kind, 4, 6) for kind in ("sinusoidal", "learned", "none")
    )
    assert torch.equal(sinusoidal(2, 3), sinusoids(2, 3, 4))
    assert isinstance(learned, LearnedPositions)
    assert torch.equal(none(2, 3), torch.zeros(3, 4))
    assert not list(none.parameters())
