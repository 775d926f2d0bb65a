"""How far a run is: counters that add up, also over other devices, and that survive being written."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from nmt_cli.errors import CheckpointError
from nmt_cli.training.costs import CostMeter, Spent
from nmt_cli.training.rates import Rates
from nmt_cli.training.state import Progress, Window

TWO = CostMeter(Rates(sustained=10.0, peak=100.0, origin=""), devices=2)
ONE = CostMeter(Rates(sustained=3.0, peak=30.0, origin=""), devices=1)


def update(costs: CostMeter, seconds: float) -> Window:
    return Window(
        steps=1,
        loss=8.0,
        nll=7.0,
        target_tokens=4,
        source_tokens=5,
        seconds=seconds,
        spent=costs.of(seconds),
        flops=6.0,
    )


def test_updates_add_up() -> None:
    progress = Progress()
    progress.count(replace(update(TWO, 2.0), gradient_norm=3.0))
    progress.count(replace(update(TWO, 1.0), gradient_norm=4.0))
    assert (progress.target_tokens, progress.source_tokens, progress.flops) == (8, 10, 12)
    assert (progress.training_seconds, progress.spent) == (3.0, TWO.of(3.0))
    assert progress.window == Window(2, 16.0, 14.0, 8, 10, 3.0, TWO.of(3.0), 12.0, gradient_norm=4.0)


def test_cost_only_grows_when_fewer_and_slower_devices_go_on() -> None:
    """What was spent on two devices stays spent: the report after the change has both parts."""
    progress = Progress()
    progress.count(update(TWO, 2.0))
    before = progress.spent
    progress = Progress.from_json(json.loads(json.dumps(progress.to_json())), "origin")
    progress.count(update(ONE, 1.0))
    assert progress.spent == before + ONE.of(1.0) == Spent(5.0, 43e12, 430e12)
    assert progress.window.spent == progress.spent  # a window may span the change


def old(progress: Progress) -> dict[str, Any]:
    """As checkpoints had it before `spent` was kept."""
    values = progress.to_json()
    del values["spent"], values["window"]["spent"]
    return values


def test_an_older_checkpoint_counts_as_done_by_these_devices() -> None:
    written = Progress(step=3, training_seconds=9.0, window=Window(seconds=4.0))
    progress = Progress.from_json(old(written), "origin")
    assert progress == written
    assert progress.assume_spent(TWO)
    assert (progress.spent, progress.window.spent) == (TWO.of(9.0), TWO.of(4.0))
    assert not progress.assume_spent(ONE)  # once is enough
    assert progress.spent == TWO.of(9.0)


def test_a_run_that_has_not_begun_needs_no_assumption() -> None:
    progress = Progress()
    assert not progress.assume_spent(TWO)
    assert progress.spent == Spent()


@pytest.mark.parametrize(
    "spent",
    [
        None,
        3.0,
        [1.0],
        {"device_seconds": -1.0},
        {"device_seconds": "1"},
        {"flops_as_table2": float("nan")},
        {"possible_flops": float("inf")},
        {"other": 1.0},
    ],
)
@pytest.mark.parametrize("place", ["progress", "window"])
def test_sums_that_are_none_are_refused(place: str, spent: Any) -> None:
    values = Progress().to_json()
    (values if place == "progress" else values["window"])["spent"] = spent
    with pytest.raises(CheckpointError, match=r"^run/step-1: "):
        Progress.from_json(values, "run/step-1")
