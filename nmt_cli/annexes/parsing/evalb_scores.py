"""EVALB's figures, of one sentence and totals over sentences; and its output of both, character by
character.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

VALID, ERROR, SKIPPED, WRONG = range(4)
"""The status of a sentence. EVALB prints the first three. WRONG is for excluded sentences in the
strict scores.
"""

# The misspellings are EVALB's.
_HEAD = """\
  Sent.                        Matched  Bracket   Cross        Correct Tag
 ID  Len.  Stat. Recal  Prec.  Bracket gold test Bracket Words  Tags Accracy
"""
_RULE = "=" * 76 + "\n"
_BRACKETS = (
    "                {recall:6.2f} {precision:6.2f} "
    "{matched_brackets:6d} {gold_brackets:5d} {test_brackets:5d}  {crossing_brackets:5d}"
)
_TAGS = "  {words:5d} {correct_tags:5d}   {tagging_accuracy:6.2f}\n"
_SUMMARY = """\
Number of sentence        = {sentences:6d}
Number of Error sentence  = {error_sentences:6d}
Number of Skip  sentence  = {skipped_sentences:6d}
Number of Valid sentence  = {valid_sentences:6d}
Bracketing Recall         = {recall:6.2f}
Bracketing Precision      = {precision:6.2f}
Bracketing FMeasure       = {fmeasure}
Complete match            = {complete_match:6.2f}
Average crossing          = {average_crossing:6.2f}
No crossing               = {no_crossing:6.2f}
2 or less crossing        = {two_or_less_crossing:6.2f}
Tagging accuracy          = {tagging_accuracy:6.2f}
"""


@dataclass(frozen=True)
class Row:
    """One sentence's line of the table."""

    number: int
    length: int  # gold words, except those under tags deleted for the length
    status: int = ERROR
    matched: int = 0
    gold: int = 0
    test: int = 0
    crossing: int = 0  # brackets of the test tree that cross a bracket of the gold tree
    words: int = 0
    correct_tags: int = 0


def figures(rows: list[Row]) -> dict[str, float]:
    """Return totals over sentences and the figures computed from them. A percentage of nothing is
    0.
    """
    counted = [row for row in rows if row.status in (VALID, WRONG)]
    matched = sum(row.matched for row in counted)
    gold, test = sum(row.gold for row in counted), sum(row.test for row in counted)
    words, correct_tags = (
        sum(row.words for row in counted),
        sum(row.correct_tags for row in counted),
    )
    recall, precision = percentage(matched, gold), percentage(matched, test)
    complete = sum(row.status == VALID and row.matched == row.gold == row.test for row in counted)
    crossing = sum(row.crossing for row in counted)
    return {
        "recall": recall,
        "precision": precision,
        "f1": 2 * precision * recall / (precision + recall) if matched else 0.0,
        "complete_match": percentage(complete, len(counted)),
        "average_crossing": crossing / len(counted) if counted else 0.0,
        "no_crossing": percentage(sum(row.crossing == 0 for row in counted), len(counted)),
        "two_or_less_crossing": percentage(sum(row.crossing <= 2 for row in counted), len(counted)),
        "crossing_brackets": crossing,
        "tagging_accuracy": percentage(correct_tags, words),
        "sentences": len(rows),
        "error_sentences": sum(row.status == ERROR for row in rows),
        "skipped_sentences": sum(row.status == SKIPPED for row in rows),
        "valid_sentences": len(counted),
        "matched_brackets": matched,
        "gold_brackets": gold,
        "test_brackets": test,
        "words": words,
        "correct_tags": correct_tags,
    }


@dataclass(frozen=True)
class Problem:
    """An error of a sentence, and the line number in both files."""

    line: int
    message: str
    tree: str  # the file in error: "gold" or "test"; "test" if the two disagree


@dataclass(frozen=True)
class BracketReport:
    """All figures that EVALB prints, and the strict scores.

    In `strict`, sentences in error and skipped sentences count as entirely wrong: their brackets
    and words are added to the totals, with no match. Their crossing brackets are unknown.
    """

    rows: list[Row]
    problems: list[Problem]
    everything: Mapping[str, float]
    short: Mapping[str, float]  # sentences of at most `cutoff_length` words
    strict: Mapping[str, float]
    cutoff_length: int
    stopped_at: int | None  # the line at which there were more errors than the parameters allow


def percentage(part: int, whole: int) -> float:
    """Return 100 part / whole, and 0 if `whole` is 0."""
    return 100.0 * part / whole if whole > 0 else 0.0


def evalb_output(report: BracketReport) -> str:
    """Return EVALB's whole output, without totals if it stopped at too many errors."""
    table = _HEAD + _RULE + "".join(f"{table_row(row)}\n" for row in report.rows)
    if report.stopped_at is not None:
        return table
    divisible = report.everything["gold_brackets"] and report.everything["test_brackets"]
    totals = f"{_BRACKETS if divisible else ''}{_TAGS}".format_map(report.everything)
    return table + _RULE + totals + summary(report)


def table_row(row: Row) -> str:
    """Return the line of one sentence."""
    recall, precision = percentage(row.matched, row.gold), percentage(row.matched, row.test)
    return (
        f"{row.number:4d}  {row.length:3d}    {row.status:d}  {recall:6.2f} {precision:6.2f}   "
        f"{row.matched:3d}    {row.gold:3d}  {row.test:3d}    {row.crossing:3d}   "
        f"{row.words:4d}  {row.correct_tags:4d}   {percentage(row.correct_tags, row.words):6.2f}"
    )


def summary(report: BracketReport) -> str:
    """Return the summary of all sentences and of those up to the cut-off length."""
    parts = []
    for found in (report.everything, report.short):
        # EVALB divides 0 by 0.
        f1 = f"{found['f1']:6.2f}" if found["matched_brackets"] else "  -nan"
        parts.append(_SUMMARY.format(**found, fmeasure=f1))
    return (
        f"=== Summary ===\n\n-- All --\n{parts[0]}\n-- len<={report.cutoff_length} --\n{parts[1]}"
    )
