"""The model of the time of a step."""

from __future__ import annotations

import pytest

from benchmarks.peers.serve import Size
from benchmarks.scaling import Model, fit, parameters
from benchmarks.synthetic import save_model
from nmt_cli.checkpoint import load_weights


def test_a_fit_finds_the_model_that_made_the_times() -> None:
    made = Model(overhead=0.1, speed=2000.0, bandwidth=1e9)
    cases = [(1, 2048), (1, 8192), (2, 4096), (2, 16_384)]
    found = fit([(*case, made.seconds(*case, 3e7)) for case in cases], 3e7)
    assert found.overhead == pytest.approx(made.overhead)
    assert found.speed == pytest.approx(made.speed)
    assert found.bandwidth == pytest.approx(made.bandwidth)
    assert found.seconds(4, 8192, 3e7) == pytest.approx(0.1 + 8192 / 4 / 2000 + 1.5 * 0.03)


def test_the_number_of_weights_is_that_of_the_model(tmp_path) -> None:  # type: ignore[no-untyped-def]
    size = Size(layers=2, width=16, inner=24, heads=2, vocabulary=50)
    weights = load_weights(save_model(tmp_path / "model", size))
    assert parameters(size) == sum(weight.numel() for weight in weights.values())
