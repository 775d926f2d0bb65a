"""Messages on standard error, and standard streams that are safe to use when the caller closed them."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

_STREAMS = (("stdin", os.O_RDONLY), ("stdout", os.O_RDONLY), ("stderr", os.O_WRONLY))
"""The modes for reopening closed streams. Writing to a closed standard output is still an error."""

SHOWN = 3  # warnings of each kind


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


@contextlib.contextmanager
def warnings_by_kind(quiet: bool) -> Iterator[Callable[[str], None]]:
    """Yield a function that prints the first `SHOWN` warnings of each kind; at the end, print how many more there were.

    Warnings that differ in numbers only, such as that of the line, are of one kind. None are printed if `quiet`.
    """
    counts: Counter[str] = Counter()
    last: dict[str, str] = {}

    def add(message: str) -> None:
        kind = re.sub(r"0x[0-9a-f]+|\d+", "", message)
        counts[kind] += 1
        if counts[kind] <= SHOWN:
            warn(message)
            last[kind] = message

    try:
        yield (lambda message: None) if quiet else add
    finally:
        for kind, message in last.items():
            if (more := counts[kind] - SHOWN) > 0:
                warn(f"{more:,} more like this: {message.partition('; ')[0]}")


def say(message: str) -> None:
    """Print a message on stderr."""
    print(message, file=sys.stderr, flush=True)
