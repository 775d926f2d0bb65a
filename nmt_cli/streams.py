"""Messages on standard error, tables, and standard streams that a caller may have closed."""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

SHOWN = 3  # warnings of each kind
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""Characters that act on a terminal or reorder its text. Our messages have newlines and tabs."""


@contextlib.contextmanager
def safe_streams() -> Iterator[None]:
    """Reopen closed standard streams on /dev/null, and ignore write errors on standard error.

    Text that the encoding of a terminal does not have is escaped. Translations are UTF-8 bytes and
    do not pass here.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            is_input = name == "stdin"
            # It gets the free number, which a checkpoint's file would get otherwise. It is opened
            # the wrong way, so that reading or writing it is an error.
            os.open(os.devnull, os.O_WRONLY if is_input else os.O_RDONLY)
            mode = "r" if is_input else "w"
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", closefd=False))
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    # A message that cannot be written must not hide the error that it is about.
    raw = io.BufferedWriter(_Unfailing(2, "w", closefd=False))
    wrapped = io.TextIOWrapper(
        raw, sys.stderr.encoding, errors="backslashreplace", line_buffering=True
    )
    with contextlib.redirect_stderr(wrapped):
        yield


class _Unfailing(io.FileIO):
    """A file that discards what cannot be written: the reader is gone, or the disk is full."""

    def write(self, content: Any) -> int:
        try:
            return super().write(content)
        except OSError:
            return len(content)


def warn(message: str) -> None:
    say(f"warning: {message}")


@contextlib.contextmanager
def warnings_by_kind(quiet: bool) -> Iterator[Callable[[str], None]]:
    """Yield a function that prints the first `SHOWN` warnings of each kind.

    At the end, the number of the others is printed. Warnings that differ in numbers only, such as
    the number of a line, are of one kind.
    """
    counts: Counter[str] = Counter()
    last_shown: dict[str, str] = {}  # by kind

    def add(message: str) -> None:
        if quiet:
            return
        kind = re.sub(r"0x[0-9a-f]+|\d+", "", message)
        counts[kind] += 1
        if counts[kind] <= SHOWN:
            warn(message)
            last_shown[kind] = message

    try:
        yield add
    finally:
        for kind, message in last_shown.items():
            hidden = counts[kind] - SHOWN
            if hidden > 0:
                warn(f"{hidden:,} more like this: {message.partition('; ')[0]}")


def escaped(text: str) -> str:
    """Return `text` with its control characters, which names of files may have, as `\\x1b`."""
    return _CONTROLS.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), text)


def say(message: str) -> None:
    print(escaped(message), file=sys.stderr, flush=True)


def columns(rows: Sequence[Sequence[str]], numbers: Sequence[int] = ()) -> Iterator[str]:
    """Yield the rows as lines with aligned columns.

    Args:
        numbers: the columns that are aligned on the right, from 0.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = []
        for column, cell in enumerate(row):
            align = cell.rjust if column in numbers else cell.ljust
            cells.append(align(widths[column]))
        yield "  ".join(cells).rstrip()
