"""EVALB's output, letter by letter: the table of sentences and the summary."""

from __future__ import annotations

from nmt_cli.parsing.evalb import BracketReport, Row, Scores, percentage

_RULE = "=" * 76


def table_head() -> list[str]:
    """The three lines above the table (the misspellings are EVALB's)."""
    return [
        "  Sent.                        Matched  Bracket   Cross        Correct Tag",
        " ID  Len.  Stat. Recal  Prec.  Bracket gold test Bracket Words  Tags Accracy",
        _RULE,
    ]


def table_row(row: Row) -> str:
    """The line of one sentence, its recall, precision and tagging accuracy in per cent."""
    recall, precision = percentage(row.matched, row.gold), percentage(row.matched, row.test)
    return (
        f"{row.number:4d}  {row.length:3d}    {row.status:d}  {recall:6.2f} {precision:6.2f}   "
        f"{row.matched:3d}    {row.gold:3d}  {row.test:3d}    {row.crossing:3d}   "
        f"{row.words:4d}  {row.correct_tags:4d}   {percentage(row.correct_tags, row.words):6.2f}"
    )


def table_foot(scores: Scores) -> list[str]:
    """The rule below the table and the line of totals."""
    brackets = (
        f"                {scores.recall:6.2f} {scores.precision:6.2f} "
        f"{scores.matched:6d} {scores.gold:5d} {scores.test:5d}  {scores.crossing:5d}"
    )
    tags = f"  {scores.words:5d} {scores.correct_tags:5d}   {scores.tagging_accuracy:6.2f}"
    return [_RULE, (brackets if scores.gold and scores.test else "") + tags]


def summary(report: BracketReport) -> list[str]:
    """The summary: all sentences, then those up to the cut-off length."""
    return [
        "=== Summary ===",
        "",
        "-- All --",
        *_summary_lines(report.everything),
        "",
        f"-- len<={report.cutoff_length} --",
        *_summary_lines(report.short),
    ]


def evalb_output(report: BracketReport) -> str:
    """All that EVALB writes to its standard output; without totals where too many errors stopped it."""
    lines = table_head() + [table_row(row) for row in report.rows]
    if report.stopped_at is None:
        lines += table_foot(report.everything) + summary(report)
    return "\n".join(lines) + "\n"


def _summary_lines(scores: Scores) -> list[str]:
    # EVALB divides 0 by 0 where nothing matches, and prints the hardware's answer.
    f1 = f"{scores.f1:6.2f}" if scores.matched else "  -nan"
    return [
        f"Number of sentence        = {scores.sentences:6d}",
        f"Number of Error sentence  = {scores.errors:6d}",
        f"Number of Skip  sentence  = {scores.skipped:6d}",
        f"Number of Valid sentence  = {scores.valid:6d}",
        f"Bracketing Recall         = {scores.recall:6.2f}",
        f"Bracketing Precision      = {scores.precision:6.2f}",
        f"Bracketing FMeasure       = {f1}",
        f"Complete match            = {scores.complete_match:6.2f}",
        f"Average crossing          = {scores.average_crossing:6.2f}",
        f"No crossing               = {scores.no_crossing:6.2f}",
        f"2 or less crossing        = {scores.two_or_less_crossing:6.2f}",
        f"Tagging accuracy          = {scores.tagging_accuracy:6.2f}",
    ]
