"""Progress of long passes over text: a bar on a terminal, a line every 10 seconds elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from nmt_cli.streams import say

_LINE_EVERY = 10.0  # seconds
_REFRESH_EVERY = 0.1


@contextmanager
def stage(title: str, total: int, unit: str) -> Iterator[Callable[[int], None]]:
    """Show the progress of a pass of `total` units on stderr.

    Yield the function to call with the number of units that were done. Bytes are shown as MB.
    """
    from rich.console import Console  # not at the top: help comes sooner without it
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )

    start = last = time.monotonic()
    done = 0
    on_terminal = sys.stderr.isatty()
    interval = _REFRESH_EVERY if on_terminal else _LINE_EVERY
    bar = Progress(
        TextColumn("{task.description} {task.fields[rate]}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("done,"),
        TimeRemainingColumn(),
        TextColumn("left"),
        console=Console(stderr=True),
        auto_refresh=False,  # it would be a thread, and a process that forks should have only one
        disable=not on_terminal,
    )

    def rate() -> str:
        per_second = done / max(time.monotonic() - start, 1e-6)
        if unit == "bytes":
            return f"{per_second / 1e6:.1f} MB/s"
        return f"{per_second:,.0f} {unit}/s"

    def advance(amount: int) -> None:
        nonlocal done, last
        done += amount
        if time.monotonic() - last < interval:
            return
        last = time.monotonic()
        bar.update(task, completed=done, rate=rate(), refresh=True)
        if not on_terminal:
            share = max(done, 1) / max(total, done, 1)
            left = (last - start) * (1 / share - 1)
            say(f"{title}: {share:.0%} done, {rate()}, {left:.0f} s left")

    with bar:
        task = bar.add_task(title, total=total, rate="")
        yield advance
        bar.update(task, completed=total, rate=rate(), refresh=True)
    if not on_terminal:
        say(f"{title}: done in {time.monotonic() - start:.1f} s, {rate()}")
