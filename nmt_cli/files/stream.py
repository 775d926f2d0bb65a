"""Lines from a stream of bytes as they come, in windows that close when they are full or when the input pauses.

So a file is read in windows worth sorting, and whoever types a line, or waits for its answer, gets it at once.
"""

from __future__ import annotations

import codecs
import os
import select
from collections.abc import Callable, Iterator

PAUSE = 0.02
"""Seconds without input after which the lines at hand are handed on."""

LONGEST_LINE = 1 << 20
"""Bytes: what a line has beyond is left out, so that no line can fill the memory."""

_BLOCK = 1 << 16
_REPLACEMENT = "�"


class LineStream:
    """Reads lines that end in a line feed, and in nothing else; the last may lack it.

    Nothing in the input is an error: invalid UTF-8 becomes U+FFFD, a line that is too long is cut, and `warn` is told.

    Args:
        read: returns some bytes, waiting for them if it must, and none at the end.
        ready: whether `read` has bytes now or within a pause.
        warn: is told what was wrong with a line.
        name: what messages call this stream.
    """

    def __init__(
        self, read: Callable[[], bytes], ready: Callable[[], bool], warn: Callable[[str], None], name: str
    ) -> None:
        self._read, self._ready, self._warn, self._name = read, ready, warn, name
        self._number = 0

    @classmethod
    def of_descriptor(cls, descriptor: int, warn: Callable[[str], None], name: str) -> LineStream:
        """The stream of a file descriptor: a file, a pipe or a terminal."""

        def ready() -> bool:
            return bool(select.select([descriptor], [], [], PAUSE)[0])

        return cls(lambda: os.read(descriptor, _BLOCK), ready, warn, name)

    def windows(self, lines: int, characters: int = 1 << 22) -> Iterator[list[str]]:
        """Groups of at most `lines` lines; of fewer where they hold `characters`, or where the input pauses."""
        window: list[str] = []
        held = 0
        for line in self._lines():
            if line is not None:
                window.append(line)
                held += len(line)
            if window and (line is None or len(window) == lines or held >= characters):
                yield window
                window, held = [], 0
        if window:
            yield window

    def _lines(self) -> Iterator[str | None]:
        """Each line; None where the input pauses."""
        rest = b""
        while True:
            if not self._ready():
                yield None
            block = self._read()
            if not block:
                break
            *whole, rest = (rest + block).split(b"\n")
            for line in whole:
                yield self._decoded(line)
            rest = rest[: LONGEST_LINE + 1]
        if rest:
            yield self._decoded(rest)

    def _decoded(self, line: bytes) -> str:
        self._number += 1
        if self._number == 1:
            line = line.removeprefix(codecs.BOM_UTF8)
        line = line.removesuffix(b"\r")
        if len(line) > LONGEST_LINE:
            self._warn(f"{self._name}:{self._number}: longer than {LONGEST_LINE} bytes; the rest is left out")
            # Without a last character that was cut in two.
            return codecs.getincrementaldecoder("utf-8")("replace").decode(line[:LONGEST_LINE])
        try:
            return line.decode("utf-8")
        except UnicodeDecodeError as error:
            self._warn(
                f"{self._name}:{self._number}: not UTF-8 (byte 0x{line[error.start]:02x} at {error.start + 1}); "
                f"every invalid byte is read as {_REPLACEMENT} (U+FFFD)"
            )
            return line.decode("utf-8", "replace")
