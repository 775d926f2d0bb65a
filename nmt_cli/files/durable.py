"""Atomic writes: after a crash, a file or directory is whole or absent.

NAME is written as `.NAME.part` beside it, flushed to disk and renamed. While a directory is replaced, its old content
is `.NAME.old`; while it is deleted, it is `.NAME.gone`. `recover` cleans up after a crash.
"""

from __future__ import annotations

import glob
import os
import shutil
from pathlib import Path


def part_of(place: Path) -> Path:
    """Return the path under which `place` is written."""
    return place.with_name(f".{place.name}.part")


def old_of(place: Path) -> Path:
    """Return the path of the old content while `place` is replaced."""
    return place.with_name(f".{place.name}.old")


def _gone_of(place: Path) -> Path:
    return place.with_name(f".{place.name}.gone")


def put_in_place(aside: Path, place: Path) -> None:
    """Flush the directory `aside` to disk and rename it to `place`, replacing a directory there.

    Raises:
        OSError: it failed; the old directory is back at `place`.
    """
    flush_all(aside)
    old = old_of(place)
    try:
        if os.path.lexists(place):
            place.rename(old)
        aside.rename(place)
    except BaseException:
        recover(place)
        raise
    _flush(place.parent)
    _remove(old)


def flush_all(directory: Path) -> None:
    """Flush `directory` and everything in it to disk."""
    for path in [*directory.rglob("*"), directory]:
        if path.is_dir() or path.is_file():
            _flush(path)


def recover(place: Path) -> None:
    """Restore `place` if its replacement was interrupted, and delete the remains of writing and deleting it."""
    old = old_of(place)
    if os.path.lexists(old) and not os.path.lexists(place):
        old.rename(place)
    for remains in (old, part_of(place), _gone_of(place)):
        _remove(remains)


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
            _remove(remains)
    gone = _gone_of(directory)
    directory.rename(gone)
    _remove(gone)


def _remove(remains: Path) -> None:
    """Delete a directory as far as possible: NFS keeps files that are open. `recover` tries again.

    Of a link, which nothing here makes, the link itself is deleted.
    """
    if remains.is_symlink():
        remains.unlink()
    else:
        shutil.rmtree(remains, ignore_errors=True)


def write_text(path: Path, text: str) -> None:
    """Replace a file atomically."""
    part = part_of(path)
    part.unlink(missing_ok=True)
    try:
        _write_flushed(part, "x", text)
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
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
