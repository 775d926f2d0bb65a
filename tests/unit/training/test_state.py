"""The state of a run: sums add up, and it survives being written. Invalid ones are refused."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from typing import Any

import pytest

from nmt_cli.errors import CheckpointError
from nmt_cli.files.text import json_text
from nmt_cli.training.state import RunState, Totals


def test_sums_add_up_and_come_back() -> None:
    state = RunState(step=3, best=2.5, pending=["validate", "save"])
    for seconds in (2.0, 1.0):
        state.total.add(Totals(loss=8.0, target_tokens=4, seconds=seconds, flops_as_table2=1e12))
    assert state.total == Totals(loss=16.0, target_tokens=8, seconds=3.0, flops_as_table2=2e12)
    assert RunState.from_json(json.loads(json.dumps(asdict(state))), "origin") == state


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("total", None),
        ("total", {"seconds": -1.0}),
        ("window", {"flops": float("inf")}),
        ("total", {"other": 1.0}),
        ("step", -1),
        ("position", 1.5),
        ("pending", ["sleep"]),
        ("pending", "save"),
        ("other", 1),
    ],
)
def test_invalid_values_are_refused(place: str, value: Any) -> None:
    with pytest.raises(CheckpointError, match=r"^run/step-1: "):
        RunState.from_json({**asdict(RunState()), place: value}, "run/step-1")


def judged(measure: str, figures: list[dict[str, float]]) -> list[tuple[int, int]]:
    """Return the best step and the validations since, after each validation.

    The first one is at step 1.
    """
    state = RunState()
    after = []
    for state.step, values in enumerate(figures, start=1):
        state.judge(values, measure)
        after.append((state.best_step, state.stale_validations))
    return after


def test_an_equal_score_is_no_improvement() -> None:
    """Also if the loss is better."""
    scores = [(30.0, 5.0), (20.0, 4.0), (30.0, 3.0), (30.5, 9.0)]
    assert judged("bleu", [{"bleu": b, "loss": loss} for b, loss in scores]) == [
        (1, 0),
        (1, 1),
        (1, 2),
        (4, 0),
    ]
    assert judged("loss", [{"loss": loss} for loss in (3.0, 3.0, 2.9, 3.1)]) == [
        (1, 0),
        (1, 1),
        (3, 0),
        (3, 1),
    ]
    assert judged("loss", [{"loss": loss} for loss in (math.nan, 3.0, math.nan)]) == [
        (0, 1),
        (2, 0),
        (2, 1),
    ]


def test_the_loss_decides_while_scores_are_0() -> None:
    scores = [(0.0, 6.2), (0.0, 5.8), (0.0, 5.9), (0.0, 5.4), (0.1, 7.0), (0.0, 5.0)]
    after = [(1, 0), (2, 0), (2, 1), (4, 0), (5, 0), (5, 1)]
    assert judged("bleu", [{"bleu": b, "loss": loss} for b, loss in scores]) == after
    assert judged("bleu", [{"bleu": 0.0, "loss": 6.2}] * 2) == [(1, 0), (1, 1)]


def test_the_figures_of_the_best_validation_stay() -> None:
    state = RunState(step=1)
    state.judge({"loss": 3.0, "bleu": 9.0}, "loss")
    state.step = 2
    state.judge({"loss": math.inf, "bleu": 12.0}, "loss")
    assert (state.best_figures, state.last) == ({"loss": 3.0, "bleu": 9.0}, None)
    assert RunState.from_json(json.loads(json.dumps(asdict(state))), "origin") == state


def test_figures_that_are_not_finite_are_null_in_files() -> None:
    state = RunState(step=3)
    state.judge({"bleu": 1.0, "loss": math.nan}, "bleu")
    saved = json.loads(json_text(asdict(state)), parse_constant=pytest.fail)
    restored = RunState.from_json(saved, "place")
    assert restored.best_figures == {"bleu": 1.0}
    restored.best = 0.0
    restored.judge({"bleu": 0.0, "loss": 5.0}, "bleu")
    assert restored.best_figures == {"bleu": 0.0, "loss": 5.0}
