"""Intervals in steps and in minutes."""

from __future__ import annotations

import time

import pytest

from nmt_cli.errors import UsageError
from nmt_cli.training.settings import Interval


def test_an_interval_of_steps() -> None:
    interval = Interval("3", "--save-every")
    assert [step for step in range(1, 8) if interval.ends_at(step)] == [3, 6]
    assert not interval.elapsed()


def test_an_interval_of_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 599.0, 601.0, 602.0, 1200.0, 1203.0, 1204.0])
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    interval = Interval("10m", "--save-every")
    assert not any(interval.ends_at(step) for step in range(1, 30))
    assert [interval.elapsed() for _ in range(4)] == [False, True, False, True]


@pytest.mark.parametrize("text", ["0", "10s", "m", "-1", "", "9" * 5000])
def test_neither_steps_nor_minutes(text: str) -> None:
    with pytest.raises(UsageError, match="--save-every takes"):
        Interval(text, "--save-every")
