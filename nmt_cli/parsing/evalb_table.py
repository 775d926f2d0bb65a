"""EVALB's output, character by character: the table of sentences and the summary."""

from __future__ import annotations

from nmt_cli.parsing.evalb_scores import BracketReport, Row, Scores, percentage

_RULE = "=" * 76
_HEAD = (  # the misspellings are EVALB's
    "  Sent.                        Matched  Bracket   Cross        Correct Tag",
    " ID  Len.  Stat. Recal  Prec.  Bracket gold test Bracket Words  Tags Accracy",
    _RULE,
)


def evalb_output(report: BracketReport) -> str:
    """Return EVALB's whole output, without totals if it stopped at too many errors."""
    lines = [*_HEAD, *map(table_row, report.rows)]
    if report.stopped_at is None:
        s = report.everything
        brackets = (
            f"                {s.recall:6.2f} {s.precision:6.2f} "
            f"{s.matched_brackets:6d} {s.gold_brackets:5d} {s.test_brackets:5d}  {s.crossing_brackets:5d}"
        )
        tags = f"  {s.words:5d} {s.correct_tags:5d}   {s.tagging_accuracy:6.2f}"
        lines += [_RULE, (brackets if s.gold_brackets and s.test_brackets else "") + tags, *summary(report)]
    return "\n".join(lines) + "\n"


def table_row(row: Row) -> str:
    """Return the line of one sentence."""
    recall, precision = percentage(row.matched, row.gold), percentage(row.matched, row.test)
    return (
        f"{row.number:4d}  {row.length:3d}    {row.status:d}  {recall:6.2f} {precision:6.2f}   "
        f"{row.matched:3d}    {row.gold:3d}  {row.test:3d}    {row.crossing:3d}   "
        f"{row.words:4d}  {row.correct_tags:4d}   {percentage(row.correct_tags, row.words):6.2f}"
    )


def summary(report: BracketReport) -> list[str]:
    """Return the summary of all sentences and of those up to the cut-off length."""
    return [
        "=== Summary ===",
        "",
        "-- All --",
        *_summary_lines(report.everything),
        "",
        f"-- len<={report.cutoff_length} --",
        *_summary_lines(report.short),
    ]


def _summary_lines(scores: Scores) -> list[str]:
    f1 = f"{scores.f1:6.2f}" if scores.matched_brackets else "  -nan"  # EVALB divides 0 by 0 if nothing matches
    return [
        f"Number of sentence        = {scores.sentences:6d}",
        f"Number of Error sentence  = {scores.error_sentences:6d}",
        f"Number of Skip  sentence  = {scores.skipped_sentences:6d}",
        f"Number of Valid sentence  = {scores.valid_sentences:6d}",
        f"Bracketing Recall         = {scores.recall:6.2f}",
        f"Bracketing Precision      = {scores.precision:6.2f}",
        f"Bracketing FMeasure       = {f1}",
        f"Complete match            = {scores.complete_match:6.2f}",
        f"Average crossing          = {scores.average_crossing:6.2f}",
        f"No crossing               = {scores.no_crossing:6.2f}",
        f"2 or less crossing        = {scores.two_or_less_crossing:6.2f}",
        f"Tagging accuracy          = {scores.tagging_accuracy:6.2f}",
    ]
