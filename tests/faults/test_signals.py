"""Signals: the step is finished and saved, the exit code tells which it was, the same command goes on exactly."""

from __future__ import annotations

import random
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nmt_cli import checkpoint


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP])
def test_a_signal(
    forks: Any, tiny_data: Path, whole: Path, tmp_path: Path, check_same: Callable[..., None], number: signal.Signals
) -> None:
    run = tmp_path / "run"
    started = forks.train(tiny_data, run, watched=str(run), signals={str(place_of(whole, 0.4)): number})
    started.code(128 + number)
    assert "Run the same command again to go on." in started.err
    assert f"saved {checkpoint.resolve(run)}" in started.err
    forks.train(tiny_data, run).code(0)
    check_same(f"SIG{number.name.removeprefix('SIG')}: saved, exit code {128 + number}", whole, run)


def test_nohup(forks: Any, tiny_data: Path, whole: Path, tmp_path: Path, check_same: Callable[..., None]) -> None:
    run = tmp_path / "run"
    hangup = {str(place_of(whole, 0.4)): signal.SIGHUP}
    forks.train(tiny_data, run, watched=str(run), signals=hangup, poison="with_nohup").code(0)
    check_same("SIGHUP under nohup: goes on", whole, run)


def test_nobody_listens(
    forks: Any, tiny_data: Path, whole: Path, tmp_path: Path, check_same: Callable[..., None]
) -> None:
    """The reader of standard error has left: `nmt train ... 2>&1 | head`. Also when a signal then stops the run."""
    run = tmp_path / "run"
    stop = {str(place_of(whole, 0.4)): signal.SIGTERM}
    forks.train(tiny_data, run, watched=str(run), signals=stop, poison="nobody_listens").code(128 + signal.SIGTERM)
    forks.train(tiny_data, run, poison="nobody_listens").code(0)
    check_same("the reader of standard error left: goes on", whole, run)


def test_a_second_interrupt_stops_at_once(
    forks: Any, tiny_data: Path, whole: Path, tmp_path: Path, rounds: Any, check_same: Callable[..., None]
) -> None:
    """Also in the middle of the save that the first one asked for."""
    for place in random.Random(5).sample(range(place_of(whole, 0.2), place_of(whole, 0.55)), rounds(1, 12)):
        run = tmp_path / str(place)
        twice = {str(place): signal.SIGINT, str(place + 3): signal.SIGINT}
        started = forks.train(tiny_data, run, watched=str(run), signals=twice)
        started.code(130)
        forks.train(tiny_data, run).code(0)
        check_same("a second Ctrl-C", whole, run)


def place_of(whole: Path, part: float) -> int:
    """A change of a file so far into the run."""
    return round(part * int((whole.parent / "changes").read_text()))
