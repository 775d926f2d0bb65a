"""SIGKILL at any moment, and the same command again: the result is that of an undisturbed run."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any


def test_killed_before_any_change_of_a_file(
    forks: Any,
    tiny_data: Path,
    whole: Path,
    changes: int,
    tmp_path: Path,
    rounds: Any,
    check_same: Callable[..., None],
) -> None:
    """While a checkpoint is written, renamed, linked or deleted, while the metrics or the configuration are written."""
    for place in random.Random(1).sample(range(1, changes + 1), rounds(3, 60)):
        run = tmp_path / f"at-{place}"
        forks.train(tiny_data, run, watched=str(run), kill_at=place).code(-signal.SIGKILL)
        forks.train(tiny_data, run).code(0)
        check_same("SIGKILL at a change of a file", whole, run)
        shutil.rmtree(run)


def test_leftovers_of_a_kill(
    forks: Any, tiny_data: Path, whole: Path, tmp_path: Path, check_same: Callable[..., None]
) -> None:
    """They are repaired, even if the run is finished.

    `.old` is the only copy of a checkpoint and is restored, the other hidden ones are deleted, and so is an incomplete
    line of metrics. An incomplete configuration is an error.
    """
    run = tmp_path / "run"
    shutil.copytree(whole, run, symlinks=True)
    (run / "best").unlink()
    (run / "summary.json").unlink()
    checkpoints = run / "checkpoints"
    shutil.copytree(checkpoints / "step-00000012", checkpoints / "step-00000002")
    for leftover in (".part", ".gone"):
        hidden = checkpoints / f".step-00000010{leftover}"
        shutil.copytree(checkpoints / "step-00000010", hidden)
        (hidden / "model.safetensors").write_bytes(b"half")
    (checkpoints / "step-00000012").rename(checkpoints / ".step-00000012.old")
    with (run / "metrics.jsonl").open("ab") as file:
        file.write(b'{"step": 13, "lo\xff')
    forks.train(tiny_data, run).code(0)
    check_same("SIGKILL between a save and what follows it", whole, run)
    (run / "config.json").write_bytes(b"{")
    other = forks.train(tiny_data, run)
    other.code(2)
    assert str(run / "config.json") in other.err


def test_a_killed_average_keeps_the_earlier_one(forks: Any, whole: Path, tmp_path: Path, rounds: Any) -> None:
    """At any change of a file: the earlier checkpoint is kept or named in the message, or the new one is complete."""
    out = tmp_path / "averaged"
    arguments = ("average", whole, "--last", "2", "--out", out, "--overwrite")
    forks.start(*arguments).code(0)
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
