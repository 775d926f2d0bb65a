"""EVALB's figures, of one sentence and totals over sentences; and its output of both, character by character."""

from __future__ import annotations

from dataclasses import dataclass

VALID, ERROR, SKIPPED = 0, 1, 2  # the status of a sentence, as printed in the table


_RULE = "=" * 76
_HEAD = (  # the misspellings are EVALB's
    "  Sent.                        Matched  Bracket   Cross        Correct Tag",
    " ID  Len.  Stat. Recal  Prec.  Bracket gold test Bracket Words  Tags Accracy",
    _RULE,
)


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


@dataclass(frozen=True)
class Scores:
    """Totals over sentences and the figures computed from them. A percentage of nothing is 0."""

    sentences: int = 0
    error_sentences: int = 0
    skipped_sentences: int = 0
    matched_brackets: int = 0
    gold_brackets: int = 0
    test_brackets: int = 0
    complete: int = 0
    crossing_brackets: int = 0
    without_crossing: int = 0
    at_most_two_crossing: int = 0
    words: int = 0
    correct_tags: int = 0

    @classmethod
    def of(cls, rows: list[Row]) -> Scores:
        """Add up the rows."""
        valid = [row for row in rows if row.status == VALID]
        return cls(
            sentences=len(rows),
            error_sentences=sum(row.status == ERROR for row in rows),
            skipped_sentences=sum(row.status == SKIPPED for row in rows),
            matched_brackets=sum(row.matched for row in valid),
            gold_brackets=sum(row.gold for row in valid),
            test_brackets=sum(row.test for row in valid),
            complete=sum(row.matched == row.gold == row.test for row in valid),
            crossing_brackets=sum(row.crossing for row in valid),
            without_crossing=sum(row.crossing == 0 for row in valid),
            at_most_two_crossing=sum(row.crossing <= 2 for row in valid),
            words=sum(row.words for row in valid),
            correct_tags=sum(row.correct_tags for row in valid),
        )

    @property
    def valid_sentences(self) -> int:
        return self.sentences - self.error_sentences - self.skipped_sentences

    @property
    def recall(self) -> float:
        return percentage(self.matched_brackets, self.gold_brackets)

    @property
    def precision(self) -> float:
        return percentage(self.matched_brackets, self.test_brackets)

    @property
    def f1(self) -> float:
        total = self.precision + self.recall
        return 2 * self.precision * self.recall / total if total else 0.0

    @property
    def complete_match(self) -> float:
        return percentage(self.complete, self.valid_sentences)

    @property
    def average_crossing(self) -> float:
        return self.crossing_brackets / self.valid_sentences if self.valid_sentences else 0.0

    @property
    def no_crossing(self) -> float:
        return percentage(self.without_crossing, self.valid_sentences)

    @property
    def two_or_less_crossing(self) -> float:
        return percentage(self.at_most_two_crossing, self.valid_sentences)

    @property
    def tagging_accuracy(self) -> float:
        return percentage(self.correct_tags, self.words)


@dataclass(frozen=True)
class Problem:
    """An error of a sentence, and the line number in both files."""

    line: int
    message: str
    tree: str  # the file in error: "gold" or "test"; "test" if the two disagree


@dataclass(frozen=True)
class BracketReport:
    """All figures that EVALB prints, and the strict scores.

    In `strict`, sentences in error and skipped sentences count as entirely wrong: their brackets and words are added to
    the totals, with no match. Their crossing brackets are unknown, so `strict.average_crossing` is meaningless.
    """

    rows: list[Row]
    problems: list[Problem]
    everything: Scores
    short: Scores  # sentences of at most `cutoff_length` words
    strict: Scores
    cutoff_length: int
    stopped_at: int | None  # the line at which there were more errors than the parameters allow


def percentage(part: int, whole: int) -> float:
    """Return 100 part / whole, and 0 if `whole` is 0."""
    return 100.0 * part / whole if whole > 0 else 0.0


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
