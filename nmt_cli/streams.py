"""Messages on standard error, and standard streams that are safe to use when the caller closed them."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any, Self

_STREAMS = (("stdin", os.O_RDONLY), ("stdout", os.O_RDONLY), ("stderr", os.O_WRONLY))
"""The modes for reopening closed streams. Writing to a closed standard output is still an error."""


@contextlib.contextmanager
def safe_streams() -> Iterator[None]:
    """Reopen closed standard streams on /dev/null, and ignore write errors on standard error."""
    for name, mode in _STREAMS:
        if getattr(sys, name) is None:
            descriptor = os.open(os.devnull, mode)  # the lowest free number, which is the closed stream's
            setattr(sys, name, os.fdopen(descriptor, "r" if name == "stdin" else "w", encoding="utf-8", closefd=False))
    with contextlib.redirect_stderr(_IgnoreErrors(sys.stderr)):
        yield


class _IgnoreErrors:
    """A text stream that discards its output once writing fails: the reader is gone, or the disk is full."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        try:
            self._stream.write(text)
        except OSError:
            silence(self._stream)
        return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError:
            silence(self._stream)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def silence(stream: Any) -> None:
    """Send everything that is still written to `stream` to /dev/null."""
    with contextlib.suppress(OSError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)
        stream.flush()


def warn(message: str) -> None:
    """Print a warning on stderr."""
    say(f"warning: {message}")


class Warnings:
    """Prints the first `SHOWN` warnings of each kind, and at the end how many more there were; none if `quiet`.

    Warnings that differ in numbers only, such as that of the line, are of one kind.
    """

    SHOWN = 3

    def __init__(self, quiet: bool = False) -> None:
        self._quiet = quiet
        self._counts: Counter[str] = Counter()
        self._last: dict[str, str] = {}

    def __call__(self, message: str) -> None:
        kind = re.sub(r"0x[0-9a-f]+|\d+", "", message)
        self._counts[kind] += 1
        if self._counts[kind] <= self.SHOWN and not self._quiet:
            warn(message)
            self._last[kind] = message

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for kind, message in self._last.items():
            if (more := self._counts[kind] - self.SHOWN) > 0:
                warn(f"{more:,} more like this: {message.partition('; ')[0]}")


def say(message: str) -> None:
    """Print a message on stderr."""
    print(message, file=sys.stderr, flush=True)
