"""Atomic writes: after a crash, a file or directory is whole or absent.

NAME is written beside it, flushed to disk and renamed: a file as `.NAME.PID.part`, a directory as `.NAME.part`. While a
directory is replaced, its old content is `.NAME.old`; while it is deleted, it is `.NAME.gone`. `recover` cleans up
after a crash.
"""

from __future__ import annotations

import glob
import io
import os
import shutil
import stat
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


@contextmanager
def new_file(path: Path) -> Iterator[io.FileIO]:
    """Yield a file that replaces the one at `path`, with its permissions, at the end of the block.

    An error of the block, or of the disk, deletes it and leaves the old file.

    Raises:
        OSError: the file cannot be opened or flushed; `filename` names it.
    """
    place = Path(os.path.realpath(path))  # replace the target of a link, not the link
    aside = place.with_name(f".{place.name[:200]}.{os.getpid()}.part")  # another process may write the same file
    try:
        with _named(path):
            file = aside.open("wb", buffering=0)
        with file:
            if place.exists():
                os.fchmod(file.fileno(), stat.S_IMODE(place.stat().st_mode))
            yield file
            with _named(path):
                os.fsync(file.fileno())
        aside.replace(place)
        _flush(place.parent)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise


def write_text(path: Path, text: str) -> None:
    """Replace a file atomically."""
    with new_file(path) as file:
        write_all(file.fileno(), text.encode(), path)


def append_line(path: Path, line: str) -> None:
    """Append a line to a file and flush it to disk."""
    with path.open("ab", buffering=0) as file, _named(path):
        write_all(file.fileno(), f"{line}\n".encode(), path)
        os.fsync(file.fileno())


def write_all(descriptor: int, content: bytes, name: Path | str) -> None:
    """Write bytes to an open file; an OSError has the `name`."""
    with _named(name):
        while content:
            content = content[os.write(descriptor, content) :]


@contextmanager
def _named(name: Path | str) -> Iterator[None]:
    """Give the name of the file to an OSError: it has none when a write fails."""
    try:
        yield
    except OSError as error:
        error.filename = str(name)
        raise


def _flush(path: Path) -> None:
    """Flush a file, or the names in a directory, to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
