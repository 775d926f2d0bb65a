"""The file of `nmt translate --prefix`: how the output of each input line must begin."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nmt_cli.errors import DataError, counted
from nmt_cli.files.opening import open_input
from nmt_cli.files.text import decoded_lines


class PrefixFile:
    """Lines that are read together with those of the input.

    Args:
        name: of the file, for messages.
    """

    def __init__(self, name: str, lines: Iterator[str]) -> None:
        self._name, self._lines, self._read = name, lines, 0

    def take(self, count: int, source: str) -> list[str]:
        """Return the next `count` lines; raise DataError if there are fewer, naming the input `source`."""
        lines = list(itertools.islice(self._lines, count))
        self._read += len(lines)
        if len(lines) < count:
            raise self._error(f"{source} has more")
        return lines

    def end(self, source: str) -> None:
        """Raise DataError if lines are left at the end of the input `source`."""
        taken = self._read
        self._read += sum(1 for _ in self._lines)
        if self._read > taken:
            raise self._error(f"{source} has {taken:,}")

    def _error(self, problem: str) -> DataError:
        return DataError(
            f"{self._name} has {counted(self._read, 'line')} but {problem}; line n of it is the beginning of the "
            "output of line n, or empty"
        )


@contextmanager
def open_prefixes(path: Path | None) -> Iterator[PrefixFile | None]:
    """Open the file, if there is one.

    Raises:
        DataError: it cannot be read; later, a line of it is not UTF-8.
    """
    if path is None:
        yield None
        return
    with open_input(path) as stream:
        yield PrefixFile(stream.name, (line for line in decoded_lines(stream) if line is not None))
