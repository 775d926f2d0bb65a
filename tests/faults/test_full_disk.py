"""A full disk: one message, exit code 1, older checkpoints intact, and exact resume later."""

from __future__ import annotations

import random
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest


def test_writes_fail_from_any_change_on(
    forks: Any,
    tiny_data: Path,
    whole: Path,
    changes: int,
    tmp_path: Path,
    rounds: Any,
    check_same: Callable[..., None],
) -> None:
    """Checkpoint, metrics, or the best checkpoint's link."""
    for place in random.Random(3).sample(range(1, changes), rounds(2, 25)):
        run = tmp_path / str(place)
        full = forks.train(tiny_data, run, watched=str(run), full_at=place)
        if full.code() != 0:  # 0: only deletions were left, which need no room
            assert full.code() == 1
            assert "No space left" in full.err
            forks.train(tiny_data, run).code(0)
        check_same("full disk, by an injected error", whole, run)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 8 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", folder], capture_output=True, text=True
    )
    if mounted.returncode:
        pytest.skip(f"no small disk can be mounted here: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", folder], check=True)


def fill(disk: Path, leave: int) -> Path:
    filler = disk / "filler"
    filler.unlink(missing_ok=True)
    filler.write_bytes(bytes(max(0, shutil.disk_usage(disk).free - leave)))
    return filler


def test_a_disk_that_is_full(
    forks: Any, tiny_data: Path, whole: Path, small_disk: Path, check_same: Callable[..., None]
) -> None:
    """Before the first checkpoint, and in the middle of one."""
    run = small_disk / "run"
    for leave, steps, message in (
        (0, 12, "No space left on device"),
        (100_000, 12, "No space left on device"),
        (1 << 30, 6, ""),  # a step that is saved and validated in the whole run, too
        (100_000, 12, "No space left on device"),
    ):
        filler = fill(small_disk, leave)
        started = forks.train(tiny_data, run, "--max-steps", steps)
        assert started.code() == (1 if message else 0), started.err
        assert message in started.err
        filler.unlink()
    (run / "summary.json").unlink()  # of the first six steps
    forks.train(tiny_data, run).code(0)
    check_same("full disk, a file system that is full", whole, run)
