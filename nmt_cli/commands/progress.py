"""What a person sees on stderr while a long pass over text runs: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

_LINE_EVERY = 10.0  # seconds
_REFRESH_EVERY = 0.1


@contextmanager
def silent_stage(title: str) -> Iterator[None]:
    """Says when something begins that cannot tell how far it is, and how long it took."""
    print(f"{title} ...", file=sys.stderr, flush=True)
    pace = _Pace(_LINE_EVERY)
    yield
    print(f"{title}: done in {pace.elapsed():.1f} s", file=sys.stderr, flush=True)


@contextmanager
def stage(title: str, total: int, unit: str) -> Iterator[Callable[[int], None]]:
    """Shows how far a pass is, its rate and the time left; yields the function that is told of progress made.

    Args:
        total: how much there is to do.
        unit: what is counted, in the plural; "bytes" are shown as megabytes.
    """
    show = _bar if sys.stderr.isatty() else _lines
    with show(title, total, unit) as advance:
        yield advance


@contextmanager
def _bar(title: str, total: int, unit: str) -> Iterator[Callable[[int], None]]:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeElapsedColumn(),
        TextColumn("left:"),
        TimeRemainingColumn(),
    )
    # No thread refreshes the bar: a process that forks should have only one.
    bar = Progress(*columns, console=Console(stderr=True), auto_refresh=False)
    pace = _Pace(_REFRESH_EVERY)
    with bar:
        task = bar.add_task(title, total=total, rate="")
        bar.refresh()

        def advance(amount: int) -> None:
            if pace.add(amount):
                bar.update(task, completed=pace.done, rate=pace.rate(unit), refresh=True)

        yield advance
        bar.update(task, completed=total, rate=pace.rate(unit), refresh=True)


@contextmanager
def _lines(title: str, total: int, unit: str) -> Iterator[Callable[[int], None]]:
    pace = _Pace(_LINE_EVERY)

    def advance(amount: int) -> None:
        if pace.add(amount):
            share = pace.done / max(total, 1)
            left = pace.elapsed() * (1 / share - 1) if share else 0.0
            print(f"{title}: {share:.0%}, {pace.rate(unit)}, {left:.0f} s left", file=sys.stderr, flush=True)

    yield advance
    print(f"{title}: done in {pace.elapsed():.1f} s, {pace.rate(unit)}", file=sys.stderr, flush=True)


class _Pace:
    """How much was done, how fast, and whether it is time to say so."""

    def __init__(self, every: float) -> None:
        self._every = every
        self._start = self._said = time.monotonic()
        self.done = 0

    def add(self, amount: int) -> bool:
        """Counts; returns whether it is time to report."""
        self.done += amount
        now = time.monotonic()
        if now - self._said < self._every:
            return False
        self._said = now
        return True

    def elapsed(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._start

    def rate(self, unit: str) -> str:
        """Such as `12,345 pairs/s` or `3.1 MB/s`."""
        per_second = self.done / max(self.elapsed(), 1e-6)
        return f"{per_second / 1e6:.1f} MB/s" if unit == "bytes" else f"{per_second:,.0f} {unit}/s"
