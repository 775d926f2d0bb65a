"""Text files: lines split on the line feed alone, UTF-8 checked strictly, gzip read transparently.

`str.splitlines` and text-mode files also split on U+0085, U+2028 and others, which stand inside real sentences; a
corpus read that way loses its alignment. So everything here reads bytes.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import stat
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from nmt_cli.errors import DataError

LONGEST_LINE = 1 << 26
"""Bytes: a file with a longer line is taken for no text at all, so that a binary file cannot fill the memory."""

_BLOCK = 1 << 20
_REPORT_EVERY = 4096  # lines
_UTF8_MARK = b"\xef\xbb\xbf"
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")


def nobody(_: int) -> None:
    """The listener of a reader whose progress nobody follows."""


def read_lines(path: Path, consumed: Callable[[int], None] = nobody) -> Iterator[str]:
    """The lines of a UTF-8 file, plain or `.gz`, one after the other, whatever its size.

    A byte-order mark at the file's start and a carriage return at a line's end are left out; all else stays.

    Args:
        consumed: told now and then how many more bytes of the file (as it lies on the disk) have been read.

    Raises:
        DataError: missing, unreadable or a directory; not UTF-8; a damaged or truncated `.gz`; a line of more than
            `LONGEST_LINE` bytes. The message names the file and the line.
    """
    with _opened(path) as (raw, stream):
        told = 0
        number = 0
        while line := _next_line(stream, path, number + 1):
            number += 1
            if number % _REPORT_EVERY == 0:
                told = _tell(raw, told, consumed)
            yield _decoded(line, path, number)
        _tell(raw, told, consumed)


def read_parallel(
    source: Path, target: Path, consumed: Callable[[int], None] = nobody
) -> Iterator[tuple[str, str, str]]:
    """The pairs of two files that must have the same number of lines, each with its place: `train.en:17`.

    Raises:
        DataError: as `read_lines`, and if one file is longer than the other; the message gives both counts.
    """
    sources, targets = read_lines(source, consumed), read_lines(target, consumed)
    number = 0
    for source_line in sources:
        target_line = next(targets, None)
        if target_line is None:
            raise _unequal(source, number + 1 + _count(sources), target, number)
        number += 1
        yield source_line, target_line, f"{source}:{number}"
    left_over = _count(targets)
    if left_over:
        raise _unequal(source, number, target, number + left_over)


def find_file(prefix: str, ending: str) -> Path:
    """The file `PREFIX.ENDING`, or else `PREFIX.ENDING.gz`.

    Raises:
        DataError: neither is there (the message lists what is), or it is no regular file.
    """
    plain = Path(f"{prefix}.{ending}")
    for path in (plain, Path(f"{plain}.gz")):
        if path.exists():
            check_regular(path)
            return path
    beside = sorted(p.name for p in plain.parent.glob(f"{_literal(Path(prefix).name)}.*")) if prefix else []
    found = f"There is {', '.join(beside[:8])}." if beside else f"No file begins with {prefix}. at all."
    raise DataError(f"{plain}: there is no such file, nor {plain.name}.gz. {found}")


def check_regular(path: Path) -> None:
    """Raises DataError if `path` is a directory, a pipe or a device: input is read more than once."""
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        raise DataError(f"{path}: cannot read this file: {error.strerror}") from error
    if stat.S_ISDIR(mode):
        raise DataError(f"{path}: this is a directory; a text file, plain or .gz, is needed")
    if not stat.S_ISREG(mode):
        raise DataError(f"{path}: this is no regular file; input is read more than once, so save it to a file first")


def fingerprint(path: Path) -> str:
    """SHA-256 of a file's bytes, in hexadecimal.

    Raises:
        DataError: the file cannot be read.
    """
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise DataError(f"{path}: cannot read this file: {error.strerror}") from error


@contextmanager
def _opened(path: Path) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    """The file as it lies on the disk, and the stream of its text."""
    check_regular(path)
    try:
        raw = path.open("rb", buffering=_BLOCK)
    except OSError as error:
        raise DataError(f"{path}: cannot read this file: {error.strerror}") from error
    with raw:
        if path.suffix == ".gz":
            with gzip.GzipFile(fileobj=raw, mode="rb") as stream:
                yield raw, stream  # type: ignore[misc]  # GzipFile has all of IO[bytes] that is used here
        else:
            yield raw, raw


def _next_line(stream: IO[bytes], path: Path, number: int) -> bytes:
    try:
        line = stream.readline(LONGEST_LINE + 1)
    except EOFError as error:
        raise DataError(
            f"{path}:{number}: the compressed file ends in the middle; copy or download it again"
        ) from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{path}:{number}: not a sound gzip file ({error}); copy or download it again") from error
    except OSError as error:
        raise DataError(f"{path}:{number}: cannot go on reading: {error.strerror or error}") from error
    if len(line) > LONGEST_LINE:
        raise DataError(f"{path}:{number}: a line of more than {LONGEST_LINE >> 20} MiB; is this a text file?")
    return line


def _decoded(line: bytes, path: Path, number: int) -> str:
    if number == 1:
        if line.startswith(_UTF16_MARKS):
            raise DataError(f"{path}:1: this file is UTF-16; convert it: iconv -f UTF-16 -t UTF-8")
        line = line.removeprefix(_UTF8_MARK)
    try:
        return line.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path}:{number}: not valid UTF-8: byte 0x{line[error.start]:02x} at position {error.start + 1} of the "
            "line; mend the line, or convert the file, for example: iconv -f ISO-8859-1 -t UTF-8"
        ) from error


def _tell(raw: IO[bytes], told: int, consumed: Callable[[int], None]) -> int:
    position = raw.tell()
    consumed(position - told)
    return position


def _count(lines: Iterator[str]) -> int:
    return sum(1 for _ in lines)


def _unequal(source: Path, source_lines: int, target: Path, target_lines: int) -> DataError:
    return DataError(
        f"{source} has {source_lines} lines but {target} has {target_lines}; "
        "line by line the two must be translations of each other"
    )


def _literal(name: str) -> str:
    """`name` with the wildcards of `glob` taken literally."""
    return "".join(f"[{c}]" if c in "*?[" else c for c in name)
