"""Output directories that appear only when complete: written under a hidden name, then renamed."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from nmt_cli.errors import DataError, UsageError
from nmt_cli.files import durable

_LOCK = ".lock"


@contextmanager
def staged(
    out: Path,
    *,
    overwrite: bool,
    ours: Collection[str],
    marker: str,
    resumable: Callable[[Path], bool] = lambda _: False,
) -> Iterator[Path]:
    """Yield a directory to write into; it becomes `out` when the block succeeds and is deleted when it fails.

    Remains of an interrupted process are deleted first, unless they are `resumable`. A lock keeps out a second process
    with the same `out`.

    Args:
        overwrite: replace an earlier result at `out`.
        ours: the names that a result may contain; a directory with others is never replaced.
        marker: a name that every result contains.
        resumable: whether to go on from the remains of an interrupted process. They then also stay at an interruption,
            or the death of a worker process, but not at an error of the data or the disk.

    Raises:
        UsageError: `out` is in use, cannot be created, or is being written by another process.
    """
    out = Path(os.path.realpath(out))  # replace the target of a link, not the link
    _check_name(out)
    aside = out.with_name(f".{out.name}.unfinished")
    lock = _locked(aside, out)
    try:
        durable.recover(out)
        _check_free(out, overwrite, ours, marker)
        if not resumable(aside):
            _clear(aside)
        try:
            yield aside
            (aside / _LOCK).unlink()
            durable.put_in_place(aside, out)
        except (DataError, UsageError, OSError):
            shutil.rmtree(aside, ignore_errors=True)
            raise
    except BaseException:
        if not resumable(aside):
            shutil.rmtree(aside, ignore_errors=True)
        raise
    finally:
        os.close(lock)


def try_lock(file: int) -> bool:
    """Lock an open file; return False if another process has. Where the file system has no locks, it does nothing."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


@contextmanager
def alone(directory: Path) -> Iterator[None]:
    """Wait while another process is in such a context with this existing directory.

    Some network file systems lock no directories: there, it does nothing.
    """
    handle = os.open(directory, os.O_RDONLY)
    try:
        with suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _clear(directory: Path) -> None:
    """Delete everything in a directory but the lock."""
    for entry in directory.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        elif entry.name != _LOCK:
            entry.unlink()


def _check_name(out: Path) -> None:
    """Raise UsageError for the root directory, and for a name that other programs cannot open."""
    if not out.name:
        raise UsageError(f"--out {out}: not a directory that can be written anew; give a name in it")
    try:
        str(out).encode()
    except UnicodeEncodeError:
        raise UsageError(f"--out {out}: this name is not UTF-8; choose another name") from None


def _check_free(out: Path, overwrite: bool, ours: Collection[str], marker: str) -> None:
    """Raise UsageError unless `out` is absent, empty, or an earlier result that may be overwritten."""
    if not os.path.lexists(out):
        return
    if not out.is_dir():
        raise UsageError(f"--out {out}: not a directory; choose another name")
    found = {entry.name for entry in out.iterdir()}
    foreign = sorted(found - set(ours))
    if foreign:
        raise UsageError(
            f"--out {out}: this directory is in use: it contains {', '.join(foreign[:3])}; choose another name"
        )
    if found and marker not in found:
        raise UsageError(f"--out {out}: this directory is in use: it has no {marker}; choose another name")
    if found and not overwrite:
        raise UsageError(f"--out {out}: this directory exists; choose another name, or replace it with --overwrite")


def _locked(aside: Path, out: Path) -> int:
    if aside.is_symlink():
        raise UsageError(f"--out {out}: {aside} is a link; delete it, or choose another name")
    try:
        aside.mkdir(parents=True, exist_ok=True)
        lock = os.open(aside / _LOCK, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise UsageError(f"--out {out}: cannot create this directory: {error.strerror}") from error
    if not try_lock(lock):
        os.close(lock)
        raise UsageError(f"--out {out}: another process is writing this directory")
    return lock
