"""Lines in, results out, of `nmt translate` and `nmt score-targets`.

The ranks of torchrun share the windows of the input: the entry point `shared_results` of the group
`nmt.methods`.
"""

from __future__ import annotations

import itertools
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from nmt_cli import registry
from nmt_cli.cores import READ_AHEAD, Sizes
from nmt_cli.errors import counted, rank_and_size
from nmt_cli.files.opening import Input, open_input, open_output
from nmt_cli.files.parallel_text import not_parallel
from nmt_cli.files.text import count_lines, decoded_lines, read_windows
from nmt_cli.streams import warnings_by_kind


def check_line_counts(source: Path | None, other: Path | None) -> None:
    """Raise DataError if these are two files with different numbers of lines.

    The lines of pipes are counted as they are read.
    """
    if source is None or other is None or not (source.is_file() and other.is_file()):
        return
    source_lines = count_lines(source)
    other_lines = count_lines(other)
    if source_lines != other_lines:
        raise not_parallel(str(source), source_lines, str(other), other_lines)


def parallel_windows(
    source: Input,
    other: Input | None,
    lines: int,
    warn: Callable[[str], None],
    strict: bool = False,
) -> Windows:
    """Yield groups of lines of both inputs, as `read_windows` does.

    Args:
        strict: bytes of `other` that are not UTF-8 are an error, not a warning.

    Raises:
        DataError: one of the two has more lines.
    """
    windows = read_windows(source, lines, warn)
    decoded = decoded_lines(other, None if strict else warn) if other else ()
    others = (line for line in decoded if line is not None)
    count = 0
    for window in windows:
        matching = list(itertools.islice(others, len(window)))
        if other and len(matching) < len(window):
            longer = count + len(window) + sum(map(len, windows))
            raise not_parallel(source.name, longer, other.name, count + len(matching))
        yield window, matching
        count += len(window)
    if other:
        rest = sum(1 for _ in others)
        if rest:
            raise not_parallel(source.name, count, other.name, count + rest)


@dataclass
class Totals:
    """Figures of a summary. The time excludes waiting for input."""

    lines: int = 0
    tokens: int = 0
    seconds: float = 0.0
    log_probability: float = 0.0
    outputs: int = 0
    repaired: int = 0
    repairs: Counter[str] = field(default_factory=Counter)

    def add(self, other: Totals) -> None:
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)

    def summary(self, work: str) -> str:
        """Return the speed of the `work`: "translated" or "scored"."""
        # An empty input takes no time.
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
    from rich.console import Console  # not at the top: help comes sooner without it
    from rich.progress import (
        BarColumn,
        Progress,
        SpinnerColumn,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )

    columns: list[Any] = [TextColumn("{task.description}")]
    if source.size:
        columns += [BarColumn(), TaskProgressColumn(), TextColumn("done,")]
        columns += [TimeRemainingColumn(), TextColumn("left")]
        title = "starting"
    else:
        columns.append(SpinnerColumn())
        title = "waiting for input"
    start = time.monotonic()
    count = 0
    length = 0  # in bytes
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=source.size)

        def advance(lines: Sequence[str]) -> None:
            nonlocal count, length
            count += len(lines)
            length += sum(len(line.encode()) + 1 for line in lines)
            text = f"{count:,} lines {work}, {count / (time.monotonic() - start):,.1f} lines/s"
            bar.update(task, description=text, completed=source.file_position(length))

        yield advance


Results = tuple[list[str], Totals, list[str]]  # the text of each file, figures and warnings
Advance = Callable[[Sequence[str]], None]
Work = Callable[[Advance, int, list[str], list[str]], Results]
"""Called with `advance`, the number of a window's first line, its lines, and the other lines."""

Start = Callable[[Any, ExitStack], tuple[Work, Sizes]]
Windows = Iterator[tuple[list[str], list[str]]]


def write_results(
    options: Any,
    other: Path | None,
    verb: str,
    read_ahead: int | None,
    start: Start,
    more: Sequence[Path] = (),
) -> Totals:
    """Write the results of the input, and return their figures. Only the first rank writes.

    Args:
        other: a file with a line for each line of the input.
        read_ahead: lines of a window, by default as they suit the device.
        start: loads the model, with the options of this rank.
        more: files that are written beside the output.
    """
    totals = Totals()
    rank, size = rank_and_size()
    sharing = nullcontext(_results)
    if size > 1:
        sharing = registry.method("shared_results")(options)
    with sharing as results, ExitStack() as stack:
        files = [options.output, *more]
        if rank > 0:
            files = [Path(os.devnull)] * len(files)
            options = replace(options, output=files[0], quiet=True)
        warn = stack.enter_context(warnings_by_kind(options.quiet))
        check_line_counts(options.input, other)  # before the work
        source = stack.enter_context(open_input(options.input))
        other_input = stack.enter_context(open_input(other)) if other else None
        work, sizes = start(options, stack)
        if read_ahead is None:
            read_ahead = sizes.read_ahead if size == 1 else READ_AHEAD
        writers = [stack.enter_context(open_output(path)) for path in files]
        if options.input is None and sys.stdin.isatty():
            options.note("Type lines; Ctrl-D ends.")
        advance = stack.enter_context(progress(source, verb, options.shows_progress))
        windows = parallel_windows(
            source, other_input, read_ahead, warn, strict=verb == "translated"
        )
        for texts, figures, warnings in results(windows, work, advance):
            for write, text in zip(writers, texts, strict=True):
                write(text.encode())
            totals.add(figures)
            for warning in warnings:
                warn(warning)
    options.note(totals.summary(verb))
    return totals


def _results(windows: Windows, work: Work, advance: Advance) -> Iterator[Results]:
    first = 1
    for lines, others in windows:
        yield work(advance, first, lines, others)
        first += len(lines)
