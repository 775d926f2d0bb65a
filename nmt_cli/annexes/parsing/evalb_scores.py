"""EVALB's figures of a sentence and of all sentences, and its output, character by character."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

# The status of a sentence. EVALB prints the first three. In the strict scores, an excluded sentence
# is WRONG.
VALID, ERROR, SKIPPED, WRONG = range(4)

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

    @property
    def is_complete(self) -> bool:
        """Whether all brackets match."""
        return self.status == VALID and self.matched == self.gold == self.test


def figures(rows: list[Row]) -> dict[str, float]:
    """Return totals over sentences and the figures computed from them."""
    counted = [row for row in rows if row.status in (VALID, WRONG)]
    sentences = len(counted)
    statuses = Counter(row.status for row in rows)

    matched = sum(row.matched for row in counted)
    gold = sum(row.gold for row in counted)
    test = sum(row.test for row in counted)
    complete = sum(row.is_complete for row in counted)
    recall = percentage(matched, gold)
    precision = percentage(matched, test)
    f1 = 0.0
    if matched > 0:
        f1 = 2 * precision * recall / (precision + recall)

    crossing = sum(row.crossing for row in counted)
    without_crossing = sum(row.crossing == 0 for row in counted)
    with_few_crossing = sum(row.crossing <= 2 for row in counted)
    average_crossing = 0.0
    if sentences > 0:
        average_crossing = crossing / sentences

    words = sum(row.words for row in counted)
    correct_tags = sum(row.correct_tags for row in counted)
    return {
        "recall": recall,
        "precision": precision,
        "f1": f1,
        "complete_match": percentage(complete, sentences),
        "average_crossing": average_crossing,
        "no_crossing": percentage(without_crossing, sentences),
        "two_or_less_crossing": percentage(with_few_crossing, sentences),
        "crossing_brackets": crossing,
        "tagging_accuracy": percentage(correct_tags, words),
        "sentences": len(rows),
        "error_sentences": statuses[ERROR],
        "skipped_sentences": statuses[SKIPPED],
        "valid_sentences": sentences,
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
    tree: str  # the file in error, "gold" or "test", and "test" if the two disagree


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
    if whole == 0:
        return 0.0
    return 100.0 * part / whole


def evalb_output(report: BracketReport) -> str:
    """Return EVALB's whole output, without totals if it stopped at too many errors."""
    table = _HEAD + _RULE + "".join(f"{table_row(row)}\n" for row in report.rows)
    if report.stopped_at is not None:
        return table
    totals = _TAGS.format_map(report.everything)
    if report.everything["gold_brackets"] and report.everything["test_brackets"]:
        totals = _BRACKETS.format_map(report.everything) + totals
    return table + _RULE + totals + summary(report)


def table_row(row: Row) -> str:
    """Return the line of one sentence."""
    recall = percentage(row.matched, row.gold)
    precision = percentage(row.matched, row.test)
    accuracy = percentage(row.correct_tags, row.words)
    return (
        f"{row.number:4d}  {row.length:3d}    {row.status:d}  {recall:6.2f} {precision:6.2f}   "
        f"{row.matched:3d}    {row.gold:3d}  {row.test:3d}    {row.crossing:3d}   "
        f"{row.words:4d}  {row.correct_tags:4d}   {accuracy:6.2f}"
    )


def summary(report: BracketReport) -> str:
    """Return the summaries of all sentences and of short sentences."""
    everything = _summary_of(report.everything)
    short = _summary_of(report.short)
    return f"=== Summary ===\n\n-- All --\n{everything}\n-- len<={report.cutoff_length} --\n{short}"


def _summary_of(scores: Mapping[str, float]) -> str:
    fmeasure = f"{scores['f1']:6.2f}"
    if not scores["matched_brackets"]:
        fmeasure = "  -nan"  # EVALB divides 0 by 0
    return _SUMMARY.format(**scores, fmeasure=fmeasure)
