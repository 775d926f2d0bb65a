"""Section 3.5: the positional encoding."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nmt_cli.layers.embedding import SinusoidalPositions, sinusoids


@pytest.mark.parametrize("d_model", [2, 8, 512, 1024])
def test_formula(d_model: int) -> None:
    table = sinusoids(0, 300, d_model)
    for position in (0, 1, 2, 17, 255, 256, 299):
        for i in range(0, d_model // 2, max(1, d_model // 16)):
            angle = position / 10000 ** (2 * i / d_model)
            assert table[position, 2 * i].item() == pytest.approx(math.sin(angle), abs=1e-6)
            assert table[position, 2 * i + 1].item() == pytest.approx(math.cos(angle), abs=1e-6)


def test_wavelengths_run_from_2_pi_to_10000_times_2_pi() -> None:
    """They form a geometric progression; the last one falls short of the limit by one factor of it."""
    d_model = 512
    frequencies = torch.asin(sinusoids(1, 1, d_model)[0, 0::2].double().clamp(-1, 1))
    wavelengths = 2 * math.pi / frequencies
    assert wavelengths[0].item() == pytest.approx(2 * math.pi, rel=1e-6)
    assert wavelengths[-1].item() == pytest.approx(10000 ** (1 - 2 / d_model) * 2 * math.pi, rel=1e-5)
    assert (wavelengths[1:] / wavelengths[:-1]).numpy() == pytest.approx(10000 ** (2 / d_model), rel=1e-4)


@settings(max_examples=25, deadline=None)
@given(k=st.integers(-50, 50), start=st.integers(50, 4000), d_model=st.sampled_from([4, 16, 64]))
def test_a_shift_by_k_is_linear(k: int, start: int, d_model: int) -> None:
    """For any fixed offset k, PE(pos + k) is a linear function of PE(pos): a rotation of each pair of columns."""
    shift = np.zeros((d_model, d_model))
    for i in range(0, d_model, 2):
        angle = k / 10000 ** (i / d_model)
        shift[i : i + 2, i : i + 2] = [[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]]
    here, there = sinusoids(start, 40, d_model).numpy(), sinusoids(start + k, 40, d_model).numpy()
    np.testing.assert_allclose(here @ shift.T, there, atol=2e-6)


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
