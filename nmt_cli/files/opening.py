"""Files and standard streams as bytes. Gzip is recognised by content when reading and by the name when writing."""

from __future__ import annotations

import gzip
import io
import os
import select
import stat
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from nmt_cli.errors import DataError

PAUSE = 0.02
"""Seconds without input that count as a pause."""

_BLOCK = 1 << 18
_GZIP = b"\x1f\x8b"


class Input:
    """The bytes of a file, a pipe or a terminal, decompressed where they are gzip.

    Args:
        consumed: called with the number of bytes of the file read since the last call.
    """

    def __init__(self, raw: io.FileIO, name: str, consumed: Callable[[int], None] | None = None) -> None:
        self.name = name
        self._raw = raw
        self._content: io.BufferedIOBase | None = None
        self._consumed = consumed
        self._position = 0
        self._length = 0  # bytes of content returned by `read`
        status = os.fstat(raw.fileno())
        self.size = status.st_size if stat.S_ISREG(status.st_mode) else None

    def ready(self) -> bool:
        """Whether `read` can return bytes now or within `PAUSE` seconds."""
        return isinstance(self._content, gzip.GzipFile) or bool(select.select([self._raw], [], [], PAUSE)[0])

    def read(self) -> bytes:
        """Return some bytes, waiting for them if necessary; empty at the end.

        Raises:
            DataError: the input cannot be read, or is damaged gzip data.
        """
        try:
            if self._content is None:
                plain = io.BufferedReader(self._raw, _BLOCK)
                self._content = gzip.GzipFile(fileobj=plain) if plain.peek(2).startswith(_GZIP) else plain
            block = self._content.read1(_BLOCK)
        except EOFError as error:
            raise DataError(f"{self.name}: the gzip data is truncated; copy or download it again") from error
        except (gzip.BadGzipFile, zlib.error) as error:
            raise DataError(f"{self.name}: damaged gzip data ({error}); copy or download it again") from error
        except OSError as error:
            raise DataError(f"{self.name}: cannot read this file: {error.strerror or error}") from error
        if self._consumed:
            position = self._raw.tell()
            self._consumed(position - self._position)
            self._position = position
        self._length += len(block)
        return block

    def file_position(self, length: float) -> float:
        """Return about how many bytes of the file hold the first `length` bytes of the content, read already."""
        return self._raw.tell() * length / max(1, self._length) if self.size else 0.0


@contextmanager
def open_input(path: Path | None, consumed: Callable[[int], None] | None = None) -> Iterator[Input]:
    """Open a file, or standard input where `path` is None.

    Raises:
        DataError: the file cannot be opened.
    """
    if path is None:
        yield Input(io.FileIO(sys.stdin.fileno(), closefd=False), "standard input", consumed)
        return
    try:
        raw = io.FileIO(path)
    except OSError as error:
        raise DataError(f"{path}: cannot read this file: {error.strerror}") from error
    with raw:
        yield Input(raw, str(path), consumed)


@contextmanager
def open_output(path: Path | None) -> Iterator[Callable[[bytes], None]]:
    """Open a file, or standard output where `path` is None; yield the function that writes bytes to it.

    A name that ends in `.gz` is written as gzip. An existing file keeps its content until the first write, or until
    the block ends without an error.

    Raises:
        OSError: the file cannot be opened or written; `filename` names it.
    """
    if path is None:
        yield lambda content: _write(sys.stdout.fileno(), content, "standard output")
        return
    packer = zlib.compressobj(wbits=31) if path.suffix == ".gz" else None
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o666)
    holds_former = stat.S_ISREG(os.fstat(descriptor).st_mode)

    def write(content: bytes) -> None:
        nonlocal holds_former
        if holds_former:
            os.ftruncate(descriptor, 0)
            holds_former = False
        _write(descriptor, packer.compress(content) if packer else content, str(path))

    try:
        yield write
        write(b"")
    finally:
        try:
            if packer and not holds_former:
                _write(descriptor, packer.flush(), str(path))
        finally:
            os.close(descriptor)


def _write(descriptor: int, content: bytes, name: str) -> None:
    try:
        while content:
            content = content[os.write(descriptor, content) :]
    except OSError as error:
        error.filename = name
        raise
