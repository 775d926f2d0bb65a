"""The input of `nmt translate`: another file read with it, and its progress."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn

from nmt_cli.errors import counted
from nmt_cli.files.opening import Input
from nmt_cli.files.parallel_text import not_parallel
from nmt_cli.files.text import count_lines, decoded_lines, read_windows


def check_line_counts(source: Path | None, other: Path | None) -> None:
    """Raise DataError if these are two files with different numbers of lines; pipes are compared as they are read."""
    if source is None or other is None or not (source.is_file() and other.is_file()):
        return
    counts = count_lines(source), count_lines(other)
    if counts[0] != counts[1]:
        raise not_parallel(str(source), counts[0], str(other), counts[1])


def parallel_windows(
    source: Input, other: Input, lines: int, warn: Callable[[str], None], strict: bool = False
) -> Iterator[tuple[list[str], list[str]]]:
    """Yield groups of lines of both inputs, as `read_windows`; those of `other` are read as strictly as `strict` says.

    Raises:
        DataError: one of the two has more lines.
    """
    windows = read_windows(source, lines, warn)
    others = (line for line in decoded_lines(other, None if strict else warn) if line is not None)
    count = 0
    for window in windows:
        matching = list(itertools.islice(others, len(window)))
        if len(matching) < len(window):
            longer = count + len(window) + sum(map(len, windows))
            raise not_parallel(source.name, longer, other.name, count + len(matching))
        yield window, matching
        count += len(window)
    if rest := sum(1 for _ in others):
        raise not_parallel(source.name, count, other.name, count + rest)


@dataclass
class Totals:
    """Figures of a summary. The time excludes waiting for input."""

    lines: int = 0
    tokens: int = 0
    seconds: float = 0.0

    def summary(self, work: str) -> str:
        """Return the speed of the `work`: "translated" or "scored"."""
        seconds = max(self.seconds, 1e-6)
        return (
            f"{work} {counted(self.lines, 'line')} in {self.seconds:.1f} s: "
            f"{self.lines / seconds:,.1f} sentences/s, {self.tokens / seconds:,.0f} target tokens/s"
        )


@contextmanager
def progress(source: Input, work: str, shown: bool) -> Iterator[Callable[[Sequence[str]], None]]:
    """Show progress on stderr, for a file with the share done and the time left.

    Yield the function to call with the lines that are done.

    Args:
        work: "translated" or "scored".
    """
    if not shown:
        yield lambda lines: None
        return
    known = (BarColumn(), TaskProgressColumn(), TextColumn("done,"), TimeRemainingColumn(), TextColumn("left"))
    columns = (TextColumn("{task.description}"), *(known if source.size else (SpinnerColumn(),)))
    start, count, length = time.monotonic(), 0, 0
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("starting" if source.size else "waiting for input", total=source.size)

        def advance(lines: Sequence[str]) -> None:
            nonlocal count, length
            count += len(lines)
            length += sum(len(line.encode()) + 1 for line in lines)
            text = f"{count:,} lines {work}, {count / (time.monotonic() - start):,.1f} lines/s"
            bar.update(task, description=text, completed=source.file_position(length))

        yield advance
