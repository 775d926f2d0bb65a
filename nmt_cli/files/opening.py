"""Files and standard streams as bytes.

Compressed files are recognised by their content to be read, and by their name to be written.
"""

from __future__ import annotations

import errno
import importlib
import io
import os
import re
import select
import stat
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from nmt_cli.errors import DataError, NmtError
from nmt_cli.files import durable

PAUSE = 0.02  # seconds without input that count as a pause
# The endings of compressed files that can be read and written.
COMPRESSED = (".gz", ".xz", ".bz2", ".zst")

_BLOCK = 1 << 18
_BEGINNINGS = {
    "gzip": re.compile(rb"\x1f\x8b"),
    "xz": re.compile(rb"\xfd7zXZ\0"),
    "bzip2": re.compile(rb"BZh[1-9](1AY&SY|\x17rE8P\x90)"),
    "Zstandard": re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18"),  # or a frame to skip
}
# Some builds of Python lack one of them, so they are imported when they are needed.
_READERS = {
    "xz": ("lzma", "LZMADecompressor"),
    "bzip2": ("bz2", "BZ2Decompressor"),
    "Zstandard": ("backports.zstd", "ZstdDecompressor"),
}


class Input:
    """The bytes of a file, a pipe or a terminal, decompressed if they are compressed data.

    Args:
        consumed: called with the number of bytes of the file read since the last call.
    """

    def __init__(
        self, raw: io.FileIO, name: str, consumed: Callable[[int], None] | None = None
    ) -> None:
        self.name = name
        self._raw = raw
        self._plain = io.BufferedReader(raw, _BLOCK)
        self._content: Iterator[bytes] | None = None
        self._form: str | None = None  # of compression
        self._consumed = consumed
        self._position = 0
        self._length = 0  # bytes of content returned by `read`
        status = os.fstat(raw.fileno())
        self.size = status.st_size if stat.S_ISREG(status.st_mode) else None

    def ready(self) -> bool:
        """Whether `read` can return bytes now or within `PAUSE` seconds."""
        return self._form is not None or bool(select.select([self._raw], [], [], PAUSE)[0])

    def read(self) -> bytes:
        """Return some bytes, waiting for them if necessary. At the end, return none.

        Raises:
            DataError: the input cannot be read, or is damaged compressed data.
        """
        try:
            if self._content is None:
                self._content = self._blocks()
            block = next(self._content, b"")
        except EOFError as error:
            raise DataError(
                f"{self.name}: the {self._form} data is truncated; copy or download it again"
            ) from error
        except Exception as error:  # xz has a class of errors of its own
            if isinstance(error, OSError) and error.errno is not None:
                reason = "it is closed" if error.errno == errno.EBADF else error.strerror
                raise DataError(f"{self.name}: cannot read this file: {reason}") from error
            if self._form is None or isinstance(error, (NmtError, MemoryError)):
                raise
            raise DataError(
                f"{self.name}: damaged {self._form} data ({error}); copy or download it again"
            ) from error
        if self._consumed:
            position = self._raw.tell()
            self._consumed(position - self._position)
            self._position = position
        self._length += len(block)
        return block

    def _blocks(self) -> Iterator[bytes]:
        beginning = self._plain.peek(10)
        for form, pattern in _BEGINNINGS.items():
            if pattern.match(beginning):
                self._form = form
                break
        if self._form is None:
            # `read` would wait for a whole block, and a pipe may pause.
            return iter(partial(self._plain.read1, _BLOCK), b"")
        if self._form == "gzip":
            reader = importlib.import_module("gzip").GzipFile(fileobj=self._plain)
            return iter(partial(reader.read1, _BLOCK), b"")
        module, name = _READERS[self._form]
        return _decompressed(self._plain, getattr(importlib.import_module(module), name))

    def file_position(self, length: float) -> float:
        """Return about how many bytes of the file hold the first `length` bytes that were read."""
        if not self.size:
            return 0.0
        return self._raw.tell() * length / max(1, self._length)


def _decompressed(file: io.BufferedIOBase, new_stream: Callable[[], Any]) -> Iterator[bytes]:
    """Yield the content of compressed streams in sequence.

    Python's own readers would leave out the second stream.

    Args:
        new_stream: returns a decompressor for one stream.

    Raises:
        EOFError: a stream is truncated. Damaged data raise an error of the decompressor.
    """
    data = file.read1(_BLOCK)
    while data:
        stream = new_stream()
        while not stream.eof:
            block = stream.decompress(data, _BLOCK)
            if block:
                yield block
            data = b""
            if stream.needs_input and not stream.eof:
                data = file.read1(_BLOCK)
                if not data:
                    raise EOFError
        data = stream.unused_data.lstrip(b"\0")  # streams may be padded
        while not data:
            block = file.read1(_BLOCK)
            if not block:
                return
            data = block.lstrip(b"\0")


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Raise DataError where a file cannot be read."""
    try:
        yield
    except OSError as error:
        raise DataError(f"{path}: cannot read this file: {error.strerror}") from error


@contextmanager
def open_input(path: Path | None, consumed: Callable[[int], None] | None = None) -> Iterator[Input]:
    """Open a file, or standard input where `path` is None.

    Raises:
        DataError: the file cannot be opened.
    """
    if path is None:
        yield Input(io.FileIO(sys.stdin.fileno(), closefd=False), "standard input", consumed)
        return
    with explained(path):
        raw = io.FileIO(path)
    with raw:
        yield Input(raw, str(path), consumed)


@contextmanager
def open_output(path: Path | None) -> Iterator[Callable[[bytes], None]]:
    """Open a file, or standard output where `path` is None. Yield the function that writes bytes.

    The name's ending says whether it is compressed. A file appears, or replaces the one there, when
    the block ends without an error. A pipe, /dev/stdout and the like are written at once.

    Raises:
        OSError: the file cannot be opened or written. `filename` names it.
    """
    if path is None:
        yield lambda content: durable.write_all(sys.stdout.fileno(), content, "standard output")
        return
    packer = _packer(path.suffix)
    with _opened(path) as file:
        write = partial(durable.write_all, file.fileno(), name=path)
        yield lambda content: write(packer.compress(content) if packer else content)
        if packer:
            write(packer.flush())


def _opened(path: Path) -> AbstractContextManager[io.FileIO]:
    entry = _descriptor(path)
    if entry and path.exists() and str(entry.parent) in ("/dev/fd", f"/proc/{os.getpid()}/fd"):
        # Opened anew, it would have a position of its own.
        return io.FileIO(int(entry.name), "w", closefd=False)
    if entry or (path.exists() and not path.is_file()):
        # Not emptied: /dev/stdout may be the file of a shell's >>.
        return path.open("ab", buffering=0)
    return durable.new_file(path)


def _descriptor(path: Path) -> Path | None:
    """Return the open descriptor that `path` is or links to, as /dev/stdout does, or None."""
    for _ in range(40):  # links
        folder = os.path.realpath(path.parent)
        if re.fullmatch(r"/dev/fd|/proc/\d+(/task/\d+)?/fd", folder):
            return Path(folder, path.name)
        if not path.is_symlink():
            break
        path = path.parent / path.readlink()
    return None


def _packer(ending: str) -> Any:
    match ending:
        case ".gz":
            # 31 is gzip. Without a time in its header, the same text gives the same bytes.
            return zlib.compressobj(wbits=31)
        case ".xz":
            return importlib.import_module("lzma").LZMACompressor()
        case ".bz2":
            return importlib.import_module("bz2").BZ2Compressor()
        case ".zst":
            zstd = importlib.import_module("backports.zstd")
            # As the program zstd.
            return zstd.ZstdCompressor(options={zstd.CompressionParameter.checksum_flag: 1})
    return None
