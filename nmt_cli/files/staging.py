"""Output directories of commands.

One process at a time writes them, and never in the place of a user's files.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from nmt_cli.errors import UsageError
from nmt_cli.files import durable


@contextmanager
def staged(out: Path, *, overwrite: bool, allowed: Collection[str], marker: str) -> Iterator[Path]:
    """Yield a directory to write into, which becomes `out` if the block succeeds.

    Args:
        overwrite: replace an earlier result at `out`.
        allowed: the names that a result may contain. A directory with others is never replaced.
        marker: a name that every result contains.

    Raises:
        UsageError: `out` is in use, cannot be created, or is being written by another process.
    """
    out = Path(os.path.realpath(out))  # replace the target of a link, not the link
    with _locked(out):
        durable.recover(out)
        _check_free(out, overwrite, allowed, marker)
        with durable.new_directory(out) as aside:
            yield aside
            _check_free(out, overwrite, allowed, marker)  # the user may have written there since


def check_name(out: Path) -> None:
    """Raise UsageError for the root directory, which has no name."""
    if not out.name:
        raise UsageError(f"--out {out}: the root directory cannot be replaced; choose another name")


def try_lock(file: int) -> bool:
    """Lock an open file, and return False if another process has locked it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # this file system has no locks
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


@contextmanager
def _locked(out: Path) -> Iterator[None]:
    """Hold the lock `.NAME.nmt-lock` beside `out`, and delete it at the end."""
    check_name(out)
    lock = durable.beside(out, "lock")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        handle = durable.open_ours(lock)
    except OSError as error:
        raise UsageError(
            f"--out {out}: cannot create this directory: {error.filename}: {error.strerror}"
        ) from error
    try:
        # The process that held the lock may have deleted its file since it was opened here.
        is_held = (
            try_lock(handle) and lock.exists() and os.path.samestat(os.fstat(handle), lock.stat())
        )
        if not is_held:
            raise UsageError(f"--out {out}: another process is writing this directory")
        try:
            yield
        finally:
            durable.discard(lock)
    finally:
        os.close(handle)


def _check_free(out: Path, overwrite: bool, allowed: Collection[str], marker: str) -> None:
    """Raise UsageError unless `out` is absent, empty, or a result that may be overwritten."""
    if not os.path.lexists(out):
        return
    if not out.is_dir():
        raise UsageError(f"--out {out}: not a directory; choose another name")
    names = {entry.name for entry in out.iterdir()}
    foreign = sorted(names - set(allowed))
    if foreign:
        problem = f"is in use: it contains {', '.join(foreign[:3])}; choose another name"
    elif names and marker not in names:
        problem = f"is in use: it has no {marker}; choose another name"
    elif names and not overwrite:
        problem = "exists; choose another name, or replace it with --overwrite"
    else:
        return
    raise UsageError(f"--out {out}: this directory {problem}")
