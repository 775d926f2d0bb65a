"""The table of counts at the end of `nmt prepare`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from nmt_cli.data.corpus import SIDES


def show_counts(splits: Mapping[str, Mapping[str, Any]], out: Path) -> None:
    """Writes one column a split to stderr: pairs read, dropped by reason, kept, and each side's tokens."""
    table = Table(title=f"{out}", title_justify="left")
    table.add_column("")
    for split in splits:
        table.add_column(split, justify="right")
    for label, value in _rows(splits).items():
        table.add_row(label, *(value(counts) for counts in splits.values()))
    Console(stderr=True).print(table)


def _rows(splits: Mapping[str, Mapping[str, Any]]) -> dict[str, Callable[[Mapping[str, Any]], str]]:
    reasons = dict.fromkeys(reason for counts in splits.values() for reason in counts["dropped"])
    rows: dict[str, Callable[[Mapping[str, Any]], str]] = {"pairs read": lambda counts: f"{counts['read']:,}"}
    for reason in reasons:
        rows[f"dropped: {reason}"] = lambda counts, reason=reason: f"{counts['dropped'].get(reason, 0):,}"  # type: ignore[misc]
    rows["pairs kept"] = lambda counts: f"{counts['sentences']:,}"
    for side in SIDES:
        rows[f"{side} tokens"] = lambda counts, side=side: f"{counts[side]['tokens']:,}"  # type: ignore[misc]
        rows[f"{side} tokens a sentence"] = lambda counts, side=side: (  # type: ignore[misc]
            f"{counts[side]['tokens'] / max(counts['sentences'], 1):.1f}"
        )
        rows[f"{side} unknown tokens"] = lambda counts, side=side: f"{counts[side]['unknown']:,}"  # type: ignore[misc]
    return rows
