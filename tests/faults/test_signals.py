"""Signals: the update is finished and saved, the exit code is 128 + the signal, and the run resumes exactly."""

from __future__ import annotations

import json
import os
import random
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nmt_cli import checkpoint

only_long = pytest.mark.skipif(os.environ.get("NMT_FAULTS") != "long", reason="only in the long form: make faults")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP])
def test_a_signal(
    forks: Any, tiny_data: Path, whole: Path, tmp_path: Path, check_same: Callable[..., None], number: signal.Signals
) -> None:
    run = tmp_path / "run"
    started = forks.train(tiny_data, run, watched=str(run), signals={str(place_of(whole, 0.4)): number})
    started.code(128 + number)
    assert str(checkpoint.locate(run)) in started.err
    forks.train(tiny_data, run).code(0)
    check_same(f"SIG{number.name.removeprefix('SIG')}: saved, exit code {128 + number}", whole, run)


def test_nohup(forks: Any, tiny_data: Path, whole: Path, tmp_path: Path, check_same: Callable[..., None]) -> None:
    run = tmp_path / "run"
    hangup = {str(place_of(whole, 0.4)): signal.SIGHUP}
    forks.train(tiny_data, run, watched=str(run), signals=hangup, poison="with_nohup").code(0)
    check_same("SIGHUP under nohup: goes on", whole, run)


def test_standard_error_without_a_reader(
    forks: Any, tiny_data: Path, whole: Path, tmp_path: Path, check_same: Callable[..., None]
) -> None:
    """The reader of standard error is gone, as in `nmt train ... 2>&1 | head`; a signal then stops the run."""
    run = tmp_path / "run"
    stop = {str(place_of(whole, 0.4)): signal.SIGTERM}
    forks.train(tiny_data, run, watched=str(run), signals=stop, poison="without_reader").code(128 + signal.SIGTERM)
    forks.train(tiny_data, run, poison="without_reader").code(0)
    check_same("the reader of standard error left: goes on", whole, run)


def test_a_second_interrupt_stops_at_once(
    forks: Any, tiny_data: Path, whole: Path, tmp_path: Path, rounds: Any, check_same: Callable[..., None]
) -> None:
    """Also in the middle of the save after the first one."""
    for place in random.Random(5).sample(range(place_of(whole, 0.2), place_of(whole, 0.55)), rounds(1, 12)):
        run = tmp_path / str(place)
        twice = {str(place): signal.SIGINT, str(place + 3): signal.SIGINT}
        started = forks.train(tiny_data, run, watched=str(run), signals=twice)
        started.code(130)
        forks.train(tiny_data, run).code(0)
        check_same("a second Ctrl-C", whole, run)


def place_of(whole: Path, part: float) -> int:
    """The number of a change of a file, as a share of all in the run."""
    return round(part * int((whole.parent / "changes").read_text()))


SPACED = ("--save-every", 4, "--validate-every", 3, "--log-every", 5, "--keep-last", 2)
"""Of 12 steps 4, 8 and 12 are saved, 3, 6, 9 and 12 validated."""


@pytest.fixture(scope="module")
def spaced(forks: Any, tiny_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An undisturbed run that validates more often than it saves."""
    run = tmp_path_factory.mktemp("spaced") / "run"
    forks.train(tiny_data, run, *SPACED).code(0)
    return run


def test_checkpoints_at_validations_do_not_count_among_the_last(spaced: Path) -> None:
    assert [folder.name for folder in checkpoint.checkpoints_of(spaced)] == ["step-00000008", "step-00000012"]
    found = {folder.name for folder in (spaced / "checkpoints").iterdir()}
    best = checkpoint.read_contents(spaced / "best").step
    assert found == {"step-00000008", "step-00000012", f"best-{best:08d}"}


@pytest.mark.parametrize(
    ("step", "pending"),
    [
        (3, ["validate", "log"]),
        (12, ["validate", "log", "save"]),
        pytest.param(5, ["log"], marks=only_long),
        pytest.param(4, ["save"], marks=only_long),
        pytest.param(7, [], marks=only_long),
    ],
)
def test_a_signal_before_pending_actions(
    forks: Any,
    tiny_data: Path,
    spaced: Path,
    tmp_path: Path,
    check_same: Callable[..., None],
    step: int,
    pending: list[str],
) -> None:
    """The resumed run does them first: metrics, the best checkpoint and what is kept are the undisturbed run's."""
    run = tmp_path / "run"
    stop = {"poison": "asked_to_stop", "environment": {"STOP_AT": str(step)}}
    forks.train(tiny_data, run, *SPACED, **stop).code(128 + signal.SIGTERM)
    newest = checkpoint.locate(run)
    assert newest.name == f"latest-{step:08d}"
    assert checkpoint.load_training(newest).values["state"]["pending"] == pending
    if pending:  # as if the resumed run was killed after it had logged this step
        with (run / "metrics.jsonl").open("a") as file:
            file.write(json.dumps({"step": step}) + "\n")
    forks.train(tiny_data, run, *SPACED).code(0)
    check_same("SIGTERM at a step that validates or saves", spaced, run)


def test_a_pending_validation_without_its_data(
    forks: Any, tiny_data: Path, unvalidated_data: Path, tmp_path: Path
) -> None:
    """The run goes on with data that has no validation set, and does not validate."""
    run = tmp_path / "run"
    stop = {"poison": "asked_to_stop", "environment": {"STOP_AT": "4"}}
    forks.train(tiny_data, run, **stop).code(128 + signal.SIGTERM)
    forks.start("train", unvalidated_data, "--resume", run, "--max-steps", 6).code(0)
    assert [folder.name for folder in checkpoint.checkpoints_of(run)][-2:] == ["step-00000004", "step-00000006"]
    assert "validation_loss" not in (run / "metrics.jsonl").read_text()


def test_killed_between_validations_and_saves(
    forks: Any, tiny_data: Path, spaced: Path, tmp_path: Path, rounds: Any, check_same: Callable[..., None]
) -> None:
    counted = forks.train(tiny_data, tmp_path / "counted", *SPACED, watched=str(tmp_path / "counted"))
    counted.code(0)
    for place in random.Random(9).sample(range(1, counted.changes + 1), rounds(2, 20)):
        run = tmp_path / f"at-{place}"
        forks.train(tiny_data, run, *SPACED, watched=str(run), kill_at=place).code(-signal.SIGKILL)
        forks.train(tiny_data, run, *SPACED).code(0)
        check_same("SIGKILL between validations and saves", spaced, run)


def test_repeated_signals_then_the_end(forks: Any, tiny_data: Path, tmp_path: Path) -> None:
    """Each signal's checkpoint replaces the one before. If the run ends at this step, a final checkpoint is saved."""
    run = tmp_path / "run"
    for step in (1, 2):
        stop = {"poison": "asked_to_stop", "environment": {"STOP_AT": str(step)}}
        forks.train(tiny_data, run, *SPACED, **stop).code(128 + signal.SIGTERM)
        assert [folder.name for folder in checkpoint.resumable_of(run)] == [f"latest-{step:08d}"]
    forks.train(tiny_data, run, *SPACED, "--max-steps", 2).code(0)
    assert [folder.name for folder in checkpoint.resumable_of(run)] == ["step-00000002"]
    assert (run / "summary.json").exists()
