"""All that `nmt score` found, and the tables that it prints of it for people."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from nmt_cli.metrics.bleu import CHAIN, MAIN, Change, Score, decomposition, resolve
from nmt_cli.metrics.significance import Comparison

_WIDTH_WITHOUT_TERMINAL = 160
_LIKELY_CHANCE = 0.05


@dataclass(frozen=True)
class Report:
    """All that is printed."""

    systems: list[str]
    references: list[str]
    lines: int
    target_language: str
    scores: list[Score]
    comparisons: list[Comparison]


def show(report: Report) -> None:
    """Prints the report to standard output."""
    console = Console(width=None if sys.stdout.isatty() else _WIDTH_WITHOUT_TERMINAL, highlight=False)
    # Rich ends the process by itself, with code 1, when a pipe is closed; so rich only draws, and print writes.
    with console.capture() as drawn:
        _draw(console, report)
    print(drawn.get(), end="")


def _draw(console: Console, report: Report) -> None:
    console.print(Text(_heading(report)), soft_wrap=True)
    if len(report.systems) == 1:
        rows = decomposition(report.scores)
        console.print(_scores(_headline(report, rows)))
        if len(rows) > 1:
            console.print(_decomposition(rows))
    else:
        console.print(_systems(report))
    console.print("Signatures", style="italic")
    for line in _signatures(report.comparisons or report.scores):
        console.print(line, soft_wrap=True)


def _heading(report: Report) -> str:
    references = ", ".join(report.references)
    return (
        f"{', '.join(report.systems)} against {references}: {report.lines:,} lines, language {report.target_language}"
    )


def _headline(report: Report, rows: Sequence[Change]) -> list[Score]:
    """The main measures, and those that the decomposition does not show."""
    main = [measure.id for measure in resolve(MAIN, report.target_language)]
    in_chain = {name for id, _ in CHAIN for name in (id, f"{id}-lc")} if len(rows) > 1 else set()
    chosen = [score for score in report.scores if score.id in main or score.id not in in_chain]
    return sorted(chosen, key=lambda score: main.index(score.id) if score.id in main else len(main))


def _scores(scores: Sequence[Score]) -> Table:
    table = _table("Scores")
    table.add_column("score", justify="right", no_wrap=True)
    table.add_column("id", overflow="fold")
    table.add_column("full name", overflow="fold", ratio=1)
    for score in scores:
        table.add_row(f"{score.score:.2f}", score.id, score.metric)
    return table


def _decomposition(rows: Sequence[Change]) -> Table:
    table = _table(
        "BLEU, one change a row",
        "Lower-cased: sacreBLEU every letter, before it tokenises; multi-bleu.perl -lc only A to Z, after it.",
    )
    table.add_column("change", overflow="fold", ratio=1)
    table.add_column("id", overflow="fold")
    for heading in ("cased", "", "lower-cased", ""):
        table.add_column(heading, justify="right", no_wrap=True)
    cased = lowercased = 0.0
    for row in rows:
        # Differences of what is shown, so that the column adds up for who checks it.
        deltas = (round(row.cased.score, 2) - cased, round(row.lowercased.score, 2) - lowercased)
        shown = [f"{delta:+.2f}" if row.cased_delta is not None else "" for delta in deltas]
        cased, lowercased = round(row.cased.score, 2), round(row.lowercased.score, 2)
        table.add_row(row.change, row.cased.id, f"{cased:.2f}", shown[0], f"{lowercased:.2f}", shown[1])
    return table


def _systems(report: Report) -> Table:
    """A row for each system, a column for each measure; with a test, how the system compares with the first."""
    ids = list(dict.fromkeys(score.id for score in report.scores))
    caption = (
        f"Each system against the first. p: how probable a difference this large is between equals; * below "
        f"{_LIKELY_CHANCE}. ±: half the 95% interval of the resamples."
    )
    tested = bool(report.comparisons)
    table = _table("Systems", caption if tested else None, lines=tested)
    table.add_column("system", overflow="fold")
    for id in ids:
        table.add_column(id, justify="right", no_wrap=True)
    cells = report.comparisons or report.scores
    for number, system in enumerate(report.systems):
        column = [[cell for cell in cells if cell.id == id][number] for id in ids]
        table.add_row(system, *(_compared(c) if isinstance(c, Comparison) else f"{c.score:.2f}" for c in column))
    return table


def _signatures(scores: Sequence[Score] | Sequence[Comparison]) -> Iterator[Text]:
    """A line for each measure, never folded: it is there to be copied."""
    signatures = {score.id: score.signature for score in scores}
    width = max(map(len, signatures))
    for id, signature in signatures.items():
        yield Text.assemble(f"  {id:{width}}  ", (signature, "dim"))


def _table(title: str, caption: str | None = None, lines: bool = False) -> Table:
    return Table(
        box=box.SIMPLE_HEAD,
        title=title,
        title_justify="left",
        caption=caption,
        caption_justify="left",
        show_lines=lines,
    )


def _compared(comparison: Comparison) -> str:
    score = f"{comparison.score:.2f}"
    if comparison.interval is not None:
        score += f" ± {comparison.interval:.2f}"
    if comparison.p_value is None:
        return f"{score}\nbaseline"
    return f"{score}\np = {comparison.p_value:.4f}{'*' if comparison.p_value < _LIKELY_CHANCE else ''}"
