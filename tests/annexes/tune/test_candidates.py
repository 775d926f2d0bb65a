"""The candidates of `nmt tune`, and the settings of a length."""

from __future__ import annotations

from collections import Counter

import pytest

from nmt_cli import registry
from nmt_cli.annexes.tune.candidates import SPACES, candidates, of_length

MODEL = {"optimizer", "matrix_rate", "attention", "positions", "zero_sublayers"}


@pytest.mark.parametrize("space", SPACES)
def test_each_value_is_equally_frequent(space: str) -> None:
    drawn = candidates(6, space, set())
    assert len(drawn) == 6
    for name in ("dropout", "peak_learning_rate", "batch_tokens"):
        assert set(Counter(settings[name] for settings in drawn.values()).values()) == {2}


@pytest.mark.parametrize(
    ("fixed", "missing"),
    [
        ("dropout", {"dropout"}),
        ("d_model", {"num_layers", "d_model", "d_ff", "num_heads"}),
        ("preset", {"num_layers", "d_model", "d_ff", "num_heads"}),
        ("learning_rate_scale", {"peak_learning_rate"}),
        ("optimizer", MODEL),
    ],
)
def test_what_is_given_does_not_vary(fixed: str, missing: set[str]) -> None:
    everything = candidates(6, "cpu", set())["1"].keys()
    for settings in candidates(6, "cpu", {fixed}).values():
        assert settings.keys() == everything - missing


def test_no_candidate_is_there_twice() -> None:
    few = candidates(9, "cpu", {"preset", "dropout", "batch_tokens"})
    assert sorted(settings["peak_learning_rate"] for settings in few.values()) == [1e-3, 2e-3, 4e-3]


def test_warmup_and_decay_follow_the_length() -> None:
    registry.discover()
    decaying = {
        "max_steps": 300,
        "warmup_steps": 30,
        "schedule": "linear_decay",
        "decay_steps": 300,
    }
    assert of_length(300, {}) == decaying
    assert of_length(300, {"schedule": "cosine"}) == {**decaying, "schedule": "cosine"}
    paper = {"max_steps": 300_000, "warmup_steps": 4000, "schedule": "inverse_sqrt"}
    assert of_length(300_000, {"schedule": "inverse_sqrt"}) == paper
    assert of_length(3, {})["warmup_steps"] == 1
