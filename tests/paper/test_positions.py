"""Section 3.5: the positional encoding."""

from __future__ import annotations

import math

import pytest
import torch

from nmt_cli.layers.embedding import SinusoidalPositions, sinusoids


@pytest.mark.parametrize("d_model", [2, 8, 512, 1024])
def test_formula(d_model: int) -> None:
    table = sinusoids(0, 300, d_model)
    for position in (0, 1, 2, 17, 255, 256, 299):
        for i in range(0, d_model // 2, max(1, d_model // 16)):
            angle = position / 10000 ** (2 * i / d_model)
            assert table[position, 2 * i].item() == pytest.approx(math.sin(angle), abs=1e-6)
            assert table[position, 2 * i + 1].item() == pytest.approx(math.cos(angle), abs=1e-6)


def test_any_length() -> None:
    """The table grows with the length, and its first rows do not change."""
    positions = SinusoidalPositions(32)
    first = positions(0, 100).clone()
    far = positions(0, 5000)
    assert far.shape == (5000, 32)
    assert torch.equal(far[:100], first)
    torch.testing.assert_close(positions(70_000, 3), sinusoids(70_000, 3, 32), rtol=0, atol=0)


def test_positions_are_no_weights() -> None:
    assert SinusoidalPositions(8).state_dict() == {}
