"""SIGKILL at any moment, and the same command again: the result is that of an undisturbed run."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


def changes_of(whole: Path) -> int:
    return int((whole.parent / "changes").read_text())


def test_killed_before_any_change_of_a_file(
    forks: Any, tiny_data: Path, whole: Path, tmp_path: Path, rounds: Any, check_same: Callable[..., None]
) -> None:
    """While a checkpoint is written, renamed, linked or deleted, while the metrics or the configuration are written."""
    places = random.Random(1).sample(range(1, changes_of(whole) + 1), rounds(3, 40))
    for place in places:
        run = tmp_path / f"at-{place}"
        forks.train(tiny_data, run, watched=str(run), kill_at=place).code(-signal.SIGKILL)
        forks.train(tiny_data, run).code(0)
        check_same("SIGKILL at a change of a file", whole, run)
        shutil.rmtree(run)


def test_killed_at_random_moments_again_and_again(
    forks: Any, tiny_data: Path, whole: Path, tmp_path: Path, rounds: Any, check_same: Callable[..., None]
) -> None:
    chance, seconds = random.Random(2), float((whole.parent / "seconds").read_text())
    for number in range(rounds(1, 12)):
        run, kills = tmp_path / str(number), 0
        for _ in range(4):
            started = forks.train(tiny_data, run)
            end = time.monotonic() + chance.uniform(0.1, 0.9) * seconds
            while time.monotonic() < end and not started.ended:
                time.sleep(0.002)
            started.send(signal.SIGKILL)
            kills += started.code() != 0
        forks.train(tiny_data, run).code(0)
        check_same("SIGKILL at a random moment", whole, run)
        shutil.rmtree(run)


def test_killed_after_a_save(
    forks: Any, tiny_data: Path, whole: Path, tmp_path: Path, check_same: Callable[..., None]
) -> None:
    """The best checkpoint, old ones and the summary are repaired, even if the run is finished."""
    run = tmp_path / "run"
    shutil.copytree(whole, run, symlinks=True)
    (run / "best").unlink()
    (run / "summary.json").unlink()
    for best in (run / "checkpoints").glob("best-*"):
        best.rename(best.with_name(f".{best.name}.part"))
    shutil.copytree(run / "checkpoints" / "step-00000012", run / "checkpoints" / "step-00000002")
    forks.train(tiny_data, run).code(0)
    check_same("SIGKILL between a save and what follows it", whole, run)


@pytest.mark.parametrize("leftover", [".part", ".old", ".gone"])
def test_directories_of_an_interrupted_operation(
    forks: Any, tiny_data: Path, whole: Path, tmp_path: Path, check_same: Callable[..., None], leftover: str
) -> None:
    """`.old` is the only copy of a checkpoint and is restored; the others are deleted."""
    run = tmp_path / "run"
    shutil.copytree(whole, run, symlinks=True)
    newest = run / "checkpoints" / "step-00000012"
    hidden = newest.with_name(f".{newest.name}{leftover}")
    if leftover == ".old":
        newest.rename(hidden)
    else:
        shutil.copytree(newest, hidden)
        (hidden / "model.safetensors").write_bytes(b"half")
    forks.train(tiny_data, run).code(0)
    check_same("SIGKILL between two renames", whole, run)


def test_incomplete_files_of_a_run(
    forks: Any, tiny_data: Path, whole: Path, tmp_path: Path, check_same: Callable[..., None]
) -> None:
    """An incomplete line of metrics is dropped; an incomplete configuration is an error."""
    run = tmp_path / "run"
    shutil.copytree(whole, run, symlinks=True)
    with (run / "metrics.jsonl").open("ab") as file:
        file.write(b'{"step": 13, "lo\xff')
    forks.train(tiny_data, run).code(0)
    check_same("an incomplete file of the run", whole, run)
    (run / "config.json").write_bytes(b"{")
    other = forks.train(tiny_data, run)
    other.code(2)
    assert str(run / "config.json") in other.err


def test_a_killed_average_keeps_the_earlier_one(forks: Any, whole: Path, tmp_path: Path, rounds: Any) -> None:
    """At any change of a file: the earlier checkpoint is kept or named in the message, or the new one is complete."""
    out = tmp_path / "averaged"
    arguments = ("average", whole, "--last", "2", "--out", out, "--overwrite")
    counted = forks.start(*arguments, watched=str(tmp_path))
    counted.code(0)
    again = forks.start(*arguments, watched=str(tmp_path))
    again.code(0)
    weights = (out / "model.safetensors").read_bytes()
    places = range(1, again.changes + 1)
    for place in random.Random(8).sample(places, rounds(3, len(places))):
        forks.start(*arguments, watched=str(tmp_path), kill_at=place).code(-signal.SIGKILL)
        if not out.exists():
            tried = forks.start("translate", out, "--input", os.devnull)
            tried.code(1)
            assert "rename" in tried.err
        forks.start(*arguments).code(0)
        assert (out / "model.safetensors").read_bytes() == weights
        assert json.loads((out / "config.json").read_text())["step"] == 12
        assert [path.name for path in tmp_path.iterdir()] == ["averaged"]
