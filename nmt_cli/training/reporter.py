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

# The figures that are shown at the end of a run, besides its time and its best validation.
SUMMARY = (
    "steps",
    "parameters",
    "devices",
    "target_tokens",
    "target_tokens_per_second",
    "skipped_updates",
    "flops",
    "flops_as_table2",
    "model_flop_utilisation",
    "origin_of_these_rates",
)

# Updates whose time is measured to estimate the time left. The first one, which takes longer, is
# not among them.
FIRST_UPDATES = 10


class Reporter:
    """Shows log lines and, on a terminal, a progress bar.

    Args:
        quiet: show nothing, as on ranks other than the main one.
    """

    def __init__(self, quiet: bool = False) -> None:
        self.console = Console(stderr=True, quiet=quiet, highlight=False, emoji=False)
        self.bar: Bar | None = None
        self.steps = 0  # of the run, up to its end
        self.seconds: list[float] = []  # of training after each of the first steps here

    def note(self, text: str) -> None:
        """Print text."""
        # Above a progress bar, rich has to know the number of lines, so it wraps them.
        self.console.print(escaped(text), markup=False, soft_wrap=self.bar is None)

    @contextlib.contextmanager
    def display(self, state: RunState, steps: int) -> Iterator[None]:
        """Show the progress of a run of so many steps."""
        self.steps = steps
        if not self.console.is_terminal:
            yield
            return
        columns = [
            MofNCompleteColumn(),
            BarColumn(bar_width=10),
            TextColumn("{task.fields[figures]}"),
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
        """Move the progress bar to the run's step. Estimate the time left after the first steps."""
        if len(self.seconds) <= FIRST_UPDATES + 1:
            self.seconds.append(state.total.seconds)
            if len(self.seconds) == FIRST_UPDATES + 2:
                self.estimate(state.step)
        if self.bar is None:
            return
        task = self.bar.task_ids[0]
        self.bar.update(task, completed=state.step)
        window = state.window
        if window.seconds:
            loss = window.loss / window.target_tokens
            rate = window.target_tokens / window.seconds
            self.bar.update(task, figures=f"loss {loss:.3f}  {rate:,.0f} tok/s")

    def estimate(self, step: int) -> None:
        """Say how long the steps after `step` will take."""
        steps_left = self.steps - step
        if steps_left <= 0:
            return
        seconds = (self.seconds[-1] - self.seconds[1]) / FIRST_UPDATES
        time_left = duration(seconds * steps_left)
        steps = f"{counted(steps_left, 'step')} of {seconds:.2g} s"
        self.note(f"about {time_left} of training left: {steps}, and validation")

    def record(self, state: RunState, rate: float, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return a line of metrics, with the `values` of a validation.

        Losses are per target token, in nats. They are of the updates since the last line.
        """
        window = state.window
        total = state.total
        loss = nll = window_perplexity = None
        if window.target_tokens:
            loss = window.loss / window.target_tokens
            nll = window.nll / window.target_tokens
            window_perplexity = perplexity(nll)
        source_rate = target_rate = None
        if window.seconds:
            source_rate = window.source_tokens / window.seconds
            target_rate = window.target_tokens / window.seconds
        return {
            "step": state.step,
            "epoch": state.epoch + 1,
            "loss": loss,
            "nll": nll,
            "perplexity": window_perplexity,
            "lr": rate,
            "gradient_norm": state.gradient_norm,
            "target_tokens_per_second": target_rate,
            "source_tokens_per_second": source_rate,
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
        """Print a line of metrics in 80 columns, and below it the figures of a validation."""
        line = f"{time.strftime('%H:%M:%S')} step {record['step']:,} epoch {record['epoch']}"
        if record["loss"] is not None:
            line += (
                f" loss {record['loss']:.3f} ppl {readable(record['perplexity'])}"
                f" lr {record['lr']:.2e} {record['target_tokens_per_second']:,.0f} tok/s"
            )
        self.note(line)
        figures = ""
        for name, value in record.items():
            if "validation_" in name and name != "validation_nll":
                label = name.removeprefix("validation_")
                if label == "perplexity":
                    label = "ppl"
                figures += f" {label} {readable(value)}"
        if figures:
            self.note(f"  validation:{figures}")

    def summarise(self, summary: Mapping[str, Any]) -> None:
        """Print the figures at the end of a run."""
        shown = {name: summary[name] for name in SUMMARY if summary[name]}
        for name, value in summary.items():
            if name.startswith("best_validation_") and value is not None:
                shown[name] = value
        shown["training_time"] = duration(summary["training_hours"] * 3600)
        self.console.print(figures_table("summary of the run (more in summary.json)", shown))


def table(
    headings: Sequence[str],
    rows: Iterable[Sequence[str]],
    title: str = "",
    show_header: bool = True,
) -> Table:
    """Return a table to be printed, whose long cells are folded."""
    columns = [Column(heading, overflow="fold") for heading in headings]
    result = Table(*columns, title=title, show_header=show_header)
    for row in rows:
        result.add_row(*row)
    return result


def figures_table(title: str, figures: Mapping[str, Any]) -> Table:
    """Return a table of named figures in a short form."""
    rows = []
    for name, value in figures.items():
        label = name.replace("as_table2", "as in Table 2").replace("flop", "FLOP").replace("_", " ")
        rows.append((label, readable(value)))
    return table(("figure", "value"), rows, title, show_header=False)


def duration(seconds: float) -> str:
    """Return `12 s`, or `1:02:03` from a minute on."""
    total_minutes, rest = divmod(round(seconds), 60)
    if total_minutes == 0:
        return f"{rest} s"
    hours, minutes = divmod(total_minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"


def readable(value: Any) -> str:
    """Return `value` in a short form: `1,234`, `1.813`, `3.3e+18`, `yes`, `not set`."""
    if isinstance(value, (list, tuple)):
        return " ".join(value) or "none"
    if value is None:
        return "not set"
    if value is True:
        return "yes"
    if value is False:
        return "no"
    if isinstance(value, float):
        if 1000 <= abs(value) < 1e6:
            return f"{value:,.0f}"
        return f"{value:.4g}"
    if isinstance(value, int):
        return f"{value:,}"
    return str(value)
