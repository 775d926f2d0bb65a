"""Atomic writes: after a crash, a file or directory is whole or absent.

NAME is written as `.NAME.part` beside it, flushed to disk and renamed. While a directory is replaced, its old content
is `.NAME.old`; while it is deleted, it is `.NAME.gone`. `recover` cleans up after a crash.
"""

from __future__ import annotations

import glob
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def beside(place: Path, ending: str) -> Path:
    """Return the hidden path `.NAME.ENDING`; the endings are `part`, `old` and `gone`."""
    return place.with_name(f".{place.name}.{ending}")


@contextmanager
def new_directory(place: Path) -> Iterator[Path]:
    """Yield an empty directory that replaces `place` at the end of the block.

    An error of the block, or of the disk, deletes it and leaves the old directory at `place`.
    """
    recover(place)
    aside = beside(place, "part")
    try:
        aside.mkdir(parents=True)
        yield aside
        put_in_place(aside, place)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise


def put_in_place(aside: Path, place: Path) -> None:
    """Flush the directory `aside` to disk and rename it to `place`, replacing a directory there.

    Raises:
        OSError: it failed; the old directory is back at `place`.
    """
    for path in [*aside.rglob("*"), aside]:
        if path.is_dir() or path.is_file():
            _flush(path)
    old = beside(place, "old")
    try:
        if os.path.lexists(place):
            place.rename(old)
        aside.rename(place)
    except BaseException:
        recover(place)
        raise
    _flush(place.parent)
    shutil.rmtree(old, ignore_errors=True)


def recover(place: Path) -> None:
    """Restore `place` if its replacement was interrupted, and delete the remains of writing and deleting it."""
    old = beside(place, "old")
    if os.path.lexists(old) and not os.path.lexists(place):
        old.rename(place)
    for ending in ("old", "part", "gone"):
        # NFS keeps files that are open: the next call tries again.
        shutil.rmtree(beside(place, ending), ignore_errors=True)


def recover_all(directory: Path) -> None:
    """Call `recover` for everything in `directory` that has remains of an interrupted operation."""
    for remains in sorted(directory.glob(".*")):
        name, _, ending = remains.name.removeprefix(".").rpartition(".")
        if name and ending in ("part", "old", "gone"):
            recover(directory / name)


def delete(directory: Path) -> None:
    """Delete a directory atomically, by renaming it first, and what is kept beside it as `.NAME.*`."""
    name = glob.escape(directory.name)
    for pattern in (f".{name}.*", f"..{name}.*"):  # an export that is kept, and one that was being written
        for remains in directory.parent.glob(pattern):
            shutil.rmtree(remains, ignore_errors=True)
    gone = beside(directory, "gone")
    directory.rename(gone)
    shutil.rmtree(gone, ignore_errors=True)


def write_text(path: Path, text: str) -> None:
    """Replace a file atomically."""
    aside = beside(path, "part")
    aside.unlink(missing_ok=True)
    try:
        _write_flushed(aside, "x", text)
        aside.replace(path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise
    _flush(path.parent)


def append_line(path: Path, line: str) -> None:
    """Append a line to a file and flush it to disk."""
    _write_flushed(path, "a", line + "\n")


def _flush(path: Path) -> None:
    """Flush a file, or the names in a directory, to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_flushed(path: Path, mode: str, text: str) -> None:
    try:
        with path.open(mode, encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        error.filename = str(path)  # unset when a write fails
        raise
