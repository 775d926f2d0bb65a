"""The progress and log lines on standard error, and the lines of metrics."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as Bar
from rich.table import Column, Table

from nmt_cli.errors import counted
from nmt_cli.streams import escaped
from nmt_cli.training.costs import utilisation
from nmt_cli.training.state import RunState, perplexity

SUMMARY = (
    "steps parameters devices target_tokens target_tokens_per_second skipped_updates flops "
    "flops_as_table2 "
    "model_flop_utilisation origin_of_these_rates"
).split()
"""The figures of a run that are shown at its end, besides the training time and the best
validation.
"""

# Updates whose time is measured, after the first one, to say how long the others take.
FIRST_UPDATES = 10


class Reporter:
    """Shows a progress bar on a terminal, and log lines; those of other ranks than the main one are
    quiet.
    """

    def __init__(self, quiet: bool = False) -> None:
        self.console = Console(stderr=True, quiet=quiet, highlight=False, emoji=False)
        self.bar: Bar | None = None
        self.steps = 0  # of the run, up to its end
        self.seconds: list[float] = []  # of training after each of the first steps here

    def note(self, text: str) -> None:
        """Print text; below the progress bar, rich has to wrap long lines."""
        self.console.print(escaped(text), markup=False, soft_wrap=self.bar is None)

    @contextlib.contextmanager
    def display(self, state: RunState, steps: int) -> Iterator[None]:
        """Show the progress of a run of so many steps; as a bar, if standard error is a terminal."""
        self.steps = steps
        if not self.console.is_terminal:
            yield
            return
        columns = [
            MofNCompleteColumn(),
            BarColumn(bar_width=10),
            TextColumn("{task.fields[figures]}"),
        ]
        columns += [
            TextColumn("elapsed"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
        ]
        # Transient: a terminal's ^C may begin a new line, where a last bar would be a second one.
        with Bar(*columns, console=self.console, speed_estimate_period=60, transient=True) as bar:
            bar.add_task("train", total=steps, completed=state.step, figures="")
            self.bar = bar
            try:
                yield
            finally:
                self.bar = None

    def advance(self, state: RunState) -> None:
        """Move the progress bar to the run's step; after the first steps, say how long the others
        will take.
        """
        if len(self.seconds) <= FIRST_UPDATES + 1:
            self.seconds.append(state.total.seconds)
            if len(self.seconds) == FIRST_UPDATES + 2:
                self.estimate(state.step)
        if self.bar is None:
            return
        window, task = state.window, self.bar.task_ids[0]
        self.bar.update(task, completed=state.step)
        if window.seconds:
            rate = window.target_tokens / window.seconds
            self.bar.update(
                task, figures=f"loss {window.loss / window.target_tokens:.3f}  {rate:,.0f} tok/s"
            )

    def estimate(self, step: int) -> None:
        """Say how long the steps after `step` will take."""
        # The very first one takes longer.
        seconds = (self.seconds[-1] - self.seconds[1]) / FIRST_UPDATES
        left = self.steps - step
        if left > 0:
            steps = f"{counted(left, 'step')} of {seconds:.2g} s"
            self.note(f"about {duration(seconds * left)} of training left: {steps}, and validation")

    def record(self, state: RunState, rate: float, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return a line of metrics. Losses are per target token, in nats; `values` are from a
        validation.
        """
        window, total = state.window, state.total
        tokens, seconds = window.target_tokens, window.seconds
        return {
            "step": state.step,
            "epoch": state.epoch + 1,
            "loss": window.loss / tokens if tokens else None,
            "nll": window.nll / tokens if tokens else None,
            "perplexity": perplexity(window.nll / tokens) if tokens else None,
            "lr": rate,
            "gradient_norm": state.gradient_norm,
            "target_tokens_per_second": tokens / seconds if seconds else None,
            "source_tokens_per_second": window.source_tokens / seconds if seconds else None,
            "target_tokens": total.target_tokens,
            "training_seconds": total.seconds,
            "device_hours": total.device_seconds / 3600,
            "waiting": total.waiting,
            "flops": total.flops or None,
            "flops_as_table2": total.flops_as_table2,
            "model_flop_utilisation": utilisation(window),
            "skipped": state.skipped,
            **values,
        }

    def show(self, record: Mapping[str, Any]) -> None:
        """Print a line of metrics, which fits 80 columns, and below it the figures of a validation."""
        words = [time.strftime("%H:%M:%S"), f"step {record['step']:,}", f"epoch {record['epoch']}"]
        if record["loss"] is not None:
            words += [
                f"loss {record['loss']:.3f}",
                f"ppl {readable(record['perplexity'])}",
                f"lr {record['lr']:.2e}",
            ]
            words.append(f"{record['target_tokens_per_second']:,.0f} tok/s")
        self.note(" ".join(words))
        shown = {
            name.removeprefix("validation_"): value
            for name, value in record.items()
            if "validation_" in name
        }
        if shown:
            shown = {
                "ppl" if name == "perplexity" else name: shown[name]
                for name in shown
                if name != "nll"
            }
            self.note(
                " ".join(
                    [
                        "  validation:",
                        *(f"{name} {readable(value)}" for name, value in shown.items()),
                    ]
                )
            )

    def summarise(self, summary: Mapping[str, Any]) -> None:
        best = [
            name
            for name in summary
            if name.startswith("best_validation_") and summary[name] is not None
        ]
        shown = {name: summary[name] for name in [*SUMMARY, *best] if summary[name] or name in best}
        shown["training_time"] = duration(summary["training_hours"] * 3600)
        self.console.print(figures_table("summary of the run (more in summary.json)", shown))


def table(
    headings: Sequence[str],
    rows: Iterable[Sequence[str]],
    title: str = "",
    show_header: bool = True,
) -> Table:
    """Return a table for people, whose long cells are folded."""
    drawn = Table(
        *(Column(heading, overflow="fold") for heading in headings),
        title=title,
        show_header=show_header,
    )
    for row in rows:
        drawn.add_row(*row)
    return drawn


def figures_table(title: str, figures: Mapping[str, Any]) -> Table:
    rows = []
    for name, value in figures.items():
        label = name.replace("as_table2", "as in Table 2").replace("flop", "FLOP").replace("_", " ")
        rows.append((label, readable(value)))
    return table(("figure", "value"), rows, title, show_header=False)


def duration(seconds: float) -> str:
    """Return `12 s`, or `1:02:03` from a minute on."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}" if minutes else f"{rest} s"


def readable(value: Any) -> str:
    """Return `value` in a short form: `1,234`, `1.813`, `3.3e+18`, `yes`, `not set`."""
    if isinstance(value, (list, tuple)):
        return " ".join(value) or "none"
    if value is None or isinstance(value, bool):
        return {None: "not set", True: "yes", False: "no"}[value]
    if isinstance(value, float):
        return f"{value:,.0f}" if 1000 <= abs(value) < 1e6 else f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)
