"""Signals: the update is finished and saved, the exit code is 128 + the signal, resume is exact."""

from __future__ import annotations

import json
import random
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from long_form import only_long

from nmt_cli import checkpoint
from nmt_cli.weights import load_training


def stop(step: int, number: int = signal.SIGTERM) -> dict[str, Any]:
    """The order to send a signal in the middle of a step."""
    return {
        "poison": "asked_to_stop",
        "environment": {"STOP_AT": str(step), "STOP_BY": str(int(number))},
    }


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGUSR1, signal.SIGHUP])
def test_a_signal(forks: Any, tiny_data: Path, tmp_path: Path, number: signal.Signals) -> None:
    started = forks.train(tiny_data, tmp_path / "run", **stop(3, number))
    started.code(128 + number)
    newest = checkpoint.locate(tmp_path / "run")
    assert newest.name == "latest-00000003"
    assert str(newest) in started.err


def test_nohup_and_standard_error_without_a_reader(
    forks: Any,
    tiny_data: Path,
    whole: Path,
    changes: int,
    tmp_path: Path,
    check_same: Callable[..., None],
) -> None:
    """As in `nohup nmt train ... 2>&1 | head`: the run goes on."""
    run = tmp_path / "run"
    hangup = {str(round(0.4 * changes)): signal.SIGHUP}
    forks.train(
        tiny_data, run, watched=str(run), signals=hangup, poison="with_nohup_and_without_reader"
    ).code(0)
    check_same("SIGHUP under nohup, and a closed pipe: goes on", whole, run)


def test_a_second_interrupt_stops_at_once(
    forks: Any,
    tiny_data: Path,
    whole: Path,
    changes: int,
    tmp_path: Path,
    rounds: Any,
    check_same: Callable[..., None],
) -> None:
    """Also in the middle of the save after the first one."""
    for place in random.Random(5).sample(
        range(round(0.2 * changes), round(0.55 * changes)), rounds(1, 12)
    ):
        run = tmp_path / str(place)
        twice = {str(place): signal.SIGINT, str(place + 3): signal.SIGINT}
        started = forks.train(tiny_data, run, watched=str(run), signals=twice)
        started.code(130)
        forks.train(tiny_data, run).code(0)
        check_same("a second Ctrl-C", whole, run)


def test_checkpoints_at_validations_do_not_count_among_the_last(whole: Path) -> None:
    expected_names = ["step-00000008", "step-00000010", "step-00000012"]
    assert [folder.name for folder in checkpoint.checkpoints_of(whole)] == expected_names
    best = checkpoint.read_contents(whole / "best").step
    assert {folder.name for folder in (whole / "checkpoints").iterdir()} == {
        *expected_names,
        f"best-{best:08d}",
    }


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
    whole: Path,
    tmp_path: Path,
    check_same: Callable[..., None],
    step: int,
    pending: list[str],
) -> None:
    """The resumed run does them first: its metrics and checkpoints are the undisturbed run's."""
    run = tmp_path / "run"
    forks.train(tiny_data, run, **stop(step)).code(128 + signal.SIGTERM)
    newest = checkpoint.locate(run)
    assert newest.name == f"latest-{step:08d}"
    assert load_training(newest).values["state"]["pending"] == pending
    if pending:  # as if the resumed run was killed after it had logged this step
        with (run / "metrics.jsonl").open("a") as file:
            file.write(json.dumps({"step": step}) + "\n")
    forks.train(tiny_data, run).code(0)
    check_same("SIGTERM at a step that validates or saves", whole, run)


def test_a_pending_validation_without_its_data(
    forks: Any, tiny_data: Path, unvalidated_data: Path, tmp_path: Path
) -> None:
    """The run goes on with data that has no validation set, and does not validate."""
    run = tmp_path / "run"
    forks.train(tiny_data, run, **stop(3)).code(128 + signal.SIGTERM)
    forks.start("train", unvalidated_data, "--resume", run, "--max-steps", 6).code(0)
    assert [folder.name for folder in checkpoint.checkpoints_of(run)][-2:] == [
        "step-00000004",
        "step-00000006",
    ]
    assert "validation_loss" not in (run / "metrics.jsonl").read_text()


def test_repeated_signals_then_the_end(forks: Any, tiny_data: Path, tmp_path: Path) -> None:
    """Each signal's checkpoint replaces the one before.

    If the run ends at this step, a final checkpoint is saved.
    """
    run = tmp_path / "run"
    for step in (1, 2):
        forks.train(tiny_data, run, "--save-every", 4, **stop(step)).code(128 + signal.SIGTERM)
        assert [folder.name for folder in checkpoint.resumable_of(run)] == [f"latest-{step:08d}"]
    forks.train(tiny_data, run, "--save-every", 4, "--max-steps", 2).code(0)
    assert [folder.name for folder in checkpoint.resumable_of(run)] == ["step-00000002"]
    assert (run / "summary.json").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_stopped_translation_leaves_no_file(
    forks: Any, model: Path, tmp_path: Path, number: int
) -> None:
    """The signal comes when the hidden file has been made."""
    (tmp_path / "in").write_text("one\n" * 50)
    folder = tmp_path / "folder"
    folder.mkdir()
    order = {"watched": str(folder), "signals": {"2": int(number)}}
    command = ("translate", model, "--input", tmp_path / "in", "--workers", 1, "--device", "cpu")
    started = forks.start(*command, "--output", folder / "out", **order)
    started.code(128 + number)
    assert list(folder.iterdir()) == []
    assert "Traceback" not in started.err
