"""The state of a run: sums add up, and it survives being written; invalid ones are refused."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import pytest

from nmt_cli.errors import CheckpointError
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
