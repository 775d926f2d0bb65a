"""Files and folders that are whole or absent, at whatever point their writer is killed.

What NAME is to become is written as `.NAME.part` beside it, flushed to the disk and renamed. While a folder is
replaced its former content is `.NAME.old`, and a folder that is being deleted is `.NAME.gone`; `recover` puts back, or
takes away, what a killed process left of these.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path


def part_of(place: Path) -> Path:
    """The name under which `place` is written."""
    return place.with_name(f".{place.name}.part")


def old_of(place: Path) -> Path:
    """The name that `place` has for the moment in which it is replaced."""
    return place.with_name(f".{place.name}.old")


def put_in_place(aside: Path, place: Path) -> None:
    """Makes the folder `aside` the folder `place`, flushed; a folder that was there is lost only once it is replaced.

    Raises:
        OSError: it cannot be done; a folder that was there is there again.
    """
    flush(aside)
    old = old_of(place)
    try:
        if os.path.lexists(place):
            place.rename(old)
        aside.rename(place)
    except BaseException:
        recover(place)
        raise
    flush_one(place.parent)
    if old.exists():
        shutil.rmtree(old)


def recover(place: Path) -> None:
    """Brings `place` back where its replacement was cut off, and takes away what is left of it elsewhere."""
    old = old_of(place)
    if os.path.lexists(old) and not os.path.lexists(place):
        old.rename(place)
    for left in (old, part_of(place), _gone_of(place)):
        shutil.rmtree(left, ignore_errors=True)


def recover_all(folder: Path) -> None:
    """`recover` for every folder that lies in `folder`, or that a killed process left there under another name."""
    for left in sorted(folder.glob(".*")):
        name, _, ending = left.name.removeprefix(".").rpartition(".")
        if name and ending in ("part", "old", "gone"):
            recover(folder / name)


def delete(folder: Path) -> None:
    """Deletes a folder, which is never seen half deleted."""
    gone = _gone_of(folder)
    shutil.rmtree(gone, ignore_errors=True)
    folder.rename(gone)
    shutil.rmtree(gone)


def write_text(path: Path, text: str) -> None:
    """Replaces a file: it has the old content or the new one, also after a power cut."""
    aside = part_of(path)
    try:
        _write_flushed(aside, "w", text)
        aside.replace(path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise
    flush_one(path.parent)


def append_line(path: Path, line: str) -> None:
    """Adds a line to a file, and brings it to the disk."""
    _write_flushed(path, "a", line + "\n")


def flush(folder: Path) -> None:
    """Brings a folder, and all that is in it, to the disk."""
    for path in folder.rglob("*"):
        if path.is_dir() or path.is_file():
            flush_one(path)
    flush_one(folder)


def flush_one(path: Path) -> None:
    """Brings one file, or the names in one folder, to the disk."""
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
        error.filename = str(path)  # a write that fails does not say where
        raise


def _gone_of(place: Path) -> Path:
    return place.with_name(f".{place.name}.gone")
