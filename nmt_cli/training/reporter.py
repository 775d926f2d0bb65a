"""What people see of a run while it goes: a live display on a terminal, plain lines elsewhere; all on stderr."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.progress import (
    Progress as Bar,
)
from rich.table import Table

from nmt_cli.training.costs import utilisation
from nmt_cli.training.state import Progress


class Reporter:
    """Speaks for the main rank; the others keep quiet."""

    def __init__(self, max_steps: int, speaks: bool) -> None:
        self.max_steps = max_steps
        self.console = Console(stderr=True, quiet=not speaks, highlight=False, soft_wrap=True)
        self.bar: Bar | None = None

    def note(self, text: str) -> None:
        """A line for the user."""
        self.console.print(text, markup=False)

    @contextlib.contextmanager
    def display(self, progress: Progress) -> Iterator[None]:
        """Shows a progress bar meanwhile, on a terminal."""
        if not self.console.is_terminal:
            yield
            return
        columns = (
            TextColumn("step"),
            MofNCompleteColumn(),
            BarColumn(),
            TextColumn("{task.fields[figures]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
        )
        with Bar(*columns, console=self.console, speed_estimate_period=60) as bar:
            bar.add_task("train", total=self.max_steps, completed=progress.step, figures="")
            self.bar = bar
            try:
                yield
            finally:
                self.bar = None

    def advance(self, progress: Progress) -> None:
        """Moves the bar to the run's step."""
        if self.bar is not None:
            window, task = progress.window, self.bar.task_ids[0]
            self.bar.update(task, completed=progress.step)
            if window.seconds:
                rate = window.target_tokens / window.seconds
                cost = shown_cost(progress.flops, progress.spent.flops_as_table2)
                figures = f"loss {window.loss / window.target_tokens:.3f}  {rate:,.0f} tok/s\n{cost}"  # for 80 columns
                self.bar.update(task, figures=figures)

    def record(self, progress: Progress, rate: float, values: Mapping[str, float]) -> dict[str, Any]:
        """One line of metrics. Losses are per target token, in nats; `values` come from validation."""
        window = progress.window
        tokens = window.target_tokens
        return {
            "step": progress.step,
            "epoch": progress.epoch,
            "loss": window.loss / tokens if tokens else None,
            "nll": window.nll / tokens if tokens else None,
            "perplexity": math.exp(min(window.nll / tokens, 700.0)) if tokens else None,
            "lr": rate,
            "gradient_norm": window.gradient_norm,
            "target_tokens_per_second": tokens / window.seconds if window.seconds else None,
            "source_tokens_per_second": window.source_tokens / window.seconds if window.seconds else None,
            "target_tokens": progress.target_tokens,
            "training_seconds": progress.training_seconds,
            "flops": progress.flops or None,
            "flops_as_table2": progress.spent.flops_as_table2,
            "model_flop_utilisation": utilisation(window.flops, window.spent),
            "skipped": progress.skipped,
            **values,
        }

    def show(self, record: Mapping[str, Any]) -> None:
        """One line of metrics, for people."""
        parts = [f"step {record['step']:>7,}", f"epoch {record['epoch'] + 1}"]
        if record["loss"] is not None:
            parts += [f"loss {record['loss']:.3f}", f"ppl {record['perplexity']:.2f}", f"lr {record['lr']:.2e}"]
            parts.append(f"{record['target_tokens_per_second']:,.0f} tok/s")
        if record["model_flop_utilisation"] is not None:
            parts.append(f"mfu {record['model_flop_utilisation']:.0%}")
        parts.append(shown_cost(record["flops"], record["flops_as_table2"]))
        if "validation_loss" in record:
            parts.append(f"| valid loss {record['validation_loss']:.3f} ppl {record['validation_perplexity']:.2f}")
        known = {"validation_loss", "validation_nll", "validation_perplexity"}
        parts += [
            f"{name.removeprefix('validation_')} {record[name]:.2f}"
            for name in record
            if name.startswith("validation_") and name not in known
        ]
        self.console.print("  ".join(parts), markup=False)

    def summarise(self, summary: Mapping[str, Any]) -> None:
        """The run's figures as a table, at its end."""
        table = Table("figure", "value", title="summary of the run", show_header=False)
        for name, value in summary.items():
            table.add_row(name.replace("_", " "), shown(value))
        self.console.print(table)


def shown_cost(flops: float | None, as_table2: float) -> str:
    """The operations of the whole run so far: the model's, where it can say them, and Table 2's estimate."""
    counted, estimated = power_of_ten(flops or 0.0), power_of_ten(as_table2)
    return f"flops {counted} (table 2: {estimated})" if flops else f"flops (table 2) {estimated}"


def power_of_ten(value: float) -> str:
    """12345.6 is 1.2e4."""
    digits, _, exponent = f"{value:.1e}".partition("e")
    return f"{digits}e{int(exponent)}"


def shown(value: Any) -> str:
    """A figure as people read it."""
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) >= 1e6 or abs(value) < 0.01 else f"{value:,.3f}"
    return f"{value:,}" if isinstance(value, int) else str(value)
