"""The standard streams as the caller left them: a closed one is opened, and a standard error that nobody reads any more
does not end what it only tells of.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Any

_STREAMS = (("stdin", os.O_RDONLY), ("stdout", os.O_RDONLY), ("stderr", os.O_WRONLY))
"""What a closed one is opened for. Results that go nowhere are an error, so nothing can be written to such a stdout."""


@contextlib.contextmanager
def sound_streams() -> Iterator[None]:
    """Inside, all three standard streams are there, and standard error takes whatever is written to it."""
    for name, mode in _STREAMS:
        if getattr(sys, name) is None:
            descriptor = os.open(os.devnull, mode)  # the lowest that is free, which is the closed one
            setattr(sys, name, os.fdopen(descriptor, "r" if name == "stdin" else "w", encoding="utf-8", closefd=False))
    before = sys.stderr
    sys.stderr = Unheard(before)
    try:
        yield
    finally:
        sys.stderr = before


class Unheard:
    """A stream whose reader may leave (a pipe's end, a lost terminal), or whose disk may fill: what is said then is
    said to nobody.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Writes `text` as far as there is anybody to read it; returns its length."""
        try:
            self._stream.write(text)
        except OSError:
            silence(self._stream)
        return len(text)

    def flush(self) -> None:
        """Hands on what is written."""
        try:
            self._stream.flush()
        except OSError:
            silence(self._stream)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def silence(stream: Any) -> None:
    """What is still to be written to `stream`, by us or by a library, goes nowhere and fails no more."""
    with contextlib.suppress(OSError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
        stream.flush()
