"""Output folders that exist whole or not at all: written aside under a hidden name, then renamed."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from nmt_cli.errors import UsageError
from nmt_cli.files import durable

_LOCK = ".lock"


@contextmanager
def staged(out: Path, *, overwrite: bool, ours: Collection[str], marker: str) -> Iterator[Path]:
    """A folder to write into, which becomes `out` when the block ends well, and vanishes when it fails.

    What a killed predecessor left half-made is removed first; a predecessor still at work is not disturbed.

    Args:
        overwrite: replace `out` if it is there and is one of ours.
        ours: names that a finished folder of this kind may hold; with any other it is not touched.
        marker: the name that a finished folder certainly holds.

    Raises:
        UsageError: `out` is in use, cannot be made, or is being written by another process.
    """
    out = out.resolve()  # what a link leads to is replaced, not the link
    aside = out.with_name(f".{out.name}.unfinished")
    lock = _locked(aside, out)
    try:
        durable.recover(out)
        check_free(out, overwrite=overwrite, ours=ours, marker=marker)
        _empty(aside)
        yield aside
        (aside / _LOCK).unlink()
        durable.put_in_place(aside, out)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise
    finally:
        os.close(lock)


def check_free(out: Path, *, overwrite: bool, ours: Collection[str], marker: str) -> None:
    """Raises UsageError unless `out` is absent, empty, or one of ours that may be overwritten."""
    if not os.path.lexists(out):
        return
    if not out.is_dir():
        raise UsageError(f"--out {out}: this is no folder; choose another name")
    found = {entry.name for entry in out.iterdir()}
    if not found:
        return
    foreign = sorted(found - set(ours))
    if marker not in found or foreign:
        what = (
            f"it holds {', '.join(foreign[:3])}, which this command did not write" if foreign else f"it lacks {marker}"
        )
        raise UsageError(f"--out {out}: this folder is in use, and {what}; choose another one (nothing was changed)")
    if not overwrite:
        raise UsageError(
            f"--out {out}: this folder holds finished data; choose another one, or replace it with --overwrite"
        )


def _locked(aside: Path, out: Path) -> int:
    try:
        aside.mkdir(parents=True, exist_ok=True)
        lock = os.open(aside / _LOCK, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise UsageError(f"--out {out}: cannot write there: {error.strerror}: {error.filename}") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise UsageError(
            f"--out {out}: another process is writing this folder; wait for it, or choose another one"
        ) from None
    return lock


def _empty(aside: Path) -> None:
    for entry in aside.iterdir():
        if entry.name == _LOCK:
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()
