"""Writing and deleting: after a crash, a file or directory is whole or absent.

Nothing of the user's is touched.

NAME is written beside it, flushed to disk and renamed: a file as `.NAME.RANDOM.nmt-part`, a
directory as `.NAME.nmt-part`. While a directory is replaced, its old content is `.NAME.nmt-old`.
While it is deleted, it is `.NAME.nmt-gone`. No user makes such names. `recover` cleans up after a
crash.

The rest of the package opens files for writing, renames and deletes by these functions only. They
write, lock and delete no file through a link, except a user's own output in `new_file`.
"""

from __future__ import annotations

import errno
import io
import os
import shutil
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from nmt_cli.errors import UsageError

MARK = "nmt-"

_UNSUPPORTED = {errno.EINVAL, errno.ENOTSUP, errno.ENOSYS, errno.EACCES, errno.EPERM, errno.EBADF}
"""Errors of file systems that cannot flush a file or a directory, such as some of networks."""


def beside(place: Path, ending: str, mark: str = MARK) -> Path:
    """Return the hidden path `.NAME.nmt-ENDING`. Endings are `part`, `old`, `gone` and `lock`."""
    return place.with_name(f".{place.name}.{mark}{ending}")


@contextmanager
def new_directory(place: Path) -> Iterator[Path]:
    """Yield an empty directory that replaces `place` at the end of the block.

    An error of the block, or of the disk, deletes it and leaves the old directory at `place`.
    """
    recover(place)
    aside = beside(place, "part")
    try:
        with named(place):
            aside.mkdir(parents=True)
            yield aside
            for path in [*aside.rglob("*"), aside]:
                if path.is_dir() or path.is_file():
                    _flush(path)
            if os.path.lexists(place):
                place.rename(beside(place, "old"))
            aside.rename(place)
            _flush(place.parent)
    finally:
        recover(place)


def recover(place: Path, mark: str = MARK) -> None:
    """Restore `place` if its replacement was interrupted, and delete the remains."""
    old = beside(place, "old", mark)
    if old.is_dir() and not os.path.lexists(place):
        old.rename(place)
    for ending in ("old", "part", "gone"):
        discard(beside(place, ending, mark))


def delete(directory: Path) -> None:
    """Delete a directory atomically, by renaming it first."""
    gone = beside(directory, "gone")
    discard(gone)
    directory.rename(gone)
    discard(gone)


def set_aside(directory: Path, word: str) -> str:
    """Rename a directory to `WORD-NAME`, or to a longer name if that is in use. Return the name."""
    name = f"{word}-{directory.name}"
    while os.path.lexists(directory.with_name(name)):
        name += "x"
    directory.rename(directory.with_name(name))
    return name


def discard(path: Path) -> None:
    """Delete a file, a directory or a link, but not what the link leads to.

    NFS keeps files that are open, and their directory.
    """
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    elif os.path.lexists(path):
        path.unlink()


def new_link(place: Path, target: Path) -> None:
    """Make `place` a link to `target`, in place of a link or a directory of ours.

    Raises:
        OSError: it cannot be, as on a file system without links.
    """
    aside = beside(place, "part")
    discard(aside)
    aside.symlink_to(target)
    if place.is_dir() and not place.is_symlink():
        place.rename(beside(place, "old"))
    aside.replace(place)
    recover(place)


def copy_files(files: Iterable[Path], original: Path, copy: Path, link: bool = False) -> None:
    """Copy files of the directory `original` to `copy`, by hard links if `link` and if possible."""
    for path in files:
        target = copy / path.relative_to(original)
        target.parent.mkdir(parents=True, exist_ok=True)
        if link:
            with suppress(OSError):  # another file system, or one without links
                os.link(path, target)
                continue
        shutil.copyfile(path, target)


@contextmanager
def new_file(path: Path, is_output: bool = True) -> Iterator[io.FileIO]:
    """Yield a file that replaces the one at `path`, with its permissions, at the end of the block.

    An error of the block, or of the disk, deletes it and leaves the old file. A link at `path`
    stays, and the file that it leads to is replaced, unless `is_output` is false: our own files
    must not be links.

    Raises:
        OSError: the file cannot be opened or flushed. `filename` names it.
    """
    place = path
    if is_output:
        place = Path(os.path.realpath(path))
    else:
        check_ours(path)
    # Random, because two processes may write one file. Short, because names have a limit.
    aside = place.with_name(f".{place.name[:50]}.{os.urandom(6).hex()}.{MARK}part")
    try:
        try:
            file = aside.open("xb", buffering=0)
        except OSError as error:
            error.filename = str(path)
            raise
        with file:
            if place.exists():
                with suppress(OSError):  # some file systems have no permissions
                    os.fchmod(file.fileno(), stat.S_IMODE(place.stat().st_mode))
            yield file
            with named(path), _where_supported():
                os.fsync(file.fileno())
        aside.replace(place)
        _flush(place.parent)
    finally:
        discard(aside)


def write_text(path: Path, text: str) -> None:
    """Replace a file of ours atomically."""
    with new_file(path, is_output=False) as file:
        write_all(file.fileno(), text.encode(), path)


def append_line(path: Path, line: str) -> None:
    """Append a line to a file of ours and flush it to disk."""
    with open(open_ours(path, os.O_APPEND), "ab", buffering=0) as file, named(path):
        write_all(file.fileno(), f"{line}\n".encode(), path)
        with _where_supported():
            os.fsync(file.fileno())


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file of ours in a directory that gets its name later."""
    with open(open_ours(path, os.O_TRUNC), "wb", buffering=0) as file:
        write_all(file.fileno(), content, path)


def open_ours(path: Path, flags: int = 0) -> int:
    """Return the descriptor of a file of ours, not emptied, and made if there is none.

    Raises:
        UsageError: as `check_ours`.
    """
    check_ours(path)
    return os.open(path, flags | os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)


def check_ours(path: Path, directory: bool = False) -> None:
    """Raise UsageError if a link or anything else is in the place of our file or `directory`."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    kind = "directory" if directory else "file"
    is_right = stat.S_ISDIR(mode) if directory else stat.S_ISREG(mode)
    if not is_right:
        raise UsageError(
            f"{path}: this is {kind_of(mode)}; nmt makes a {kind} of this name itself. Move it away"
        )


def kind_of(mode: int) -> str:
    """Return the word for what has this mode, such as "a directory"."""
    kinds = {stat.S_IFDIR: "a directory", stat.S_IFREG: "a file", stat.S_IFLNK: "a link"}
    return kinds.get(stat.S_IFMT(mode), "a pipe or a device")


def write_all(descriptor: int, content: bytes, name: Path | str) -> None:
    """Write bytes to an open file. An OSError has the `name`."""
    with named(name):
        while content:
            content = content[os.write(descriptor, content) :]


@contextmanager
def named(name: Path | str) -> Iterator[None]:
    """Give the name of the file to an OSError that has none, as when a write fails."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno is not None:
            error.filename = str(name)
        raise


def _flush(path: Path) -> None:
    """Flush a file, or the names in a directory, to disk."""
    with _where_supported():
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextmanager
def _where_supported() -> Iterator[None]:
    """A context for flushing: a file system that cannot do it costs durability only."""
    try:
        yield
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise
