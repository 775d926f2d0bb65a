"""Labelled bracketing recall, precision and F1 as in the program EVALB (Sekine and Collins, 1997).

Published parsing scores come from EVALB, the paper's 91.3 (section 6.3) among them. Its rules are
reproduced exactly:

- Words under a deleted tag are removed before trees are compared. A wrong tag over a punctuation
  mark therefore changes the sentence length, which makes the sentence an error, unless QUOTE_LABEL
  lists the confused tags.
- Sentences in error and sentences whose output has no word ("skip") are excluded from all totals.
  This raises the score. `BracketReport.strict` counts them as entirely wrong.
- Functional tags are removed from the labels of brackets (NP-SBJ=1 is NP) but not from
  part-of-speech tags.
- An empty bracket does not count. The unlabelled bracket of `( (S ...))` counts. In a chain of
  equal brackets each counts.

This module continues where EVALB fails: text outside brackets is an error of the sentence, and the
numbers of words and brackets are not limited.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import accumulate
from typing import NamedTuple

from nmt_cli.annexes.parsing.evalb_parameters import Parameters
from nmt_cli.annexes.parsing.evalb_scores import (
    ERROR,
    SKIPPED,
    VALID,
    WRONG,
    BracketReport,
    Problem,
    Row,
    figures,
)
from nmt_cli.errors import shown

_TOKEN = re.compile(r"(?:\((?P<label>[^\s()]*)(?:\s+(?P<word>[^\s()]*)\))?|\))\s*", re.ASCII)
_QUOTES = ("'", '"', "/")


@dataclass
class _Leaf:
    tag: str
    word: str
    deleted: bool  # by its tag
    # Among the words that are compared: 1 unless deleted. EVALB may restore a quote, even twice.
    count: int


@dataclass
class _Bracket:
    """A bracket. The span is in leaves."""

    label: str
    start: int
    end: int | None = None  # None: it is never closed


@dataclass
class _Sentence:
    """One line as EVALB reads it."""

    leaves: list[_Leaf] = field(default_factory=list)
    brackets: list[_Bracket] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    readable: bool = True

    @property
    def compared(self) -> list[_Leaf]:
        """The leaves that are compared, each as often as it counts."""
        return [leaf for leaf in self.leaves for _ in range(leaf.count)]


class _Span(NamedTuple):
    """A bracket that counts, without functional tags. Start and end are in compared words."""

    label: str
    start: int
    end: int


def score_brackets(
    test: Iterable[str], gold: Iterable[str], parameters: Parameters
) -> BracketReport:
    """Compare two equally long files of trees, one tree a line, as EVALB does."""
    rows: list[Row] = []
    strict_rows: list[Row] = []
    problems: list[Problem] = []
    stopped_at = None
    for number, (gold_line, test_line) in enumerate(zip(gold, test, strict=True), start=1):
        gold_tree = _read(gold_line, parameters)
        test_tree = _read(test_line, parameters)
        row, errors = _compare(gold_tree, test_tree, number, parameters)
        problems += errors
        if len(problems) > parameters.max_error + 1:
            stopped_at = number
            break
        rows.append(row)
        if row.status != VALID:
            row = Row(
                number,
                row.length,
                WRONG,
                gold=len(_counting(gold_tree, parameters)),
                test=len(_counting(test_tree, parameters)),
                words=len(gold_tree.compared),
            )
        strict_rows.append(row)
    short_rows = [row for row in rows if row.length <= parameters.cutoff_length]
    return BracketReport(
        rows,
        problems,
        everything=figures(rows),
        short=figures(short_rows),
        strict=figures(strict_rows),
        cutoff_length=parameters.cutoff_length,
        stopped_at=stopped_at,
    )


def _read(line: str, parameters: Parameters) -> _Sentence:
    """Read a line of brackets without recursion. Errors are recorded, not raised."""
    sentence = _Sentence()
    open_brackets: list[_Bracket] = []
    depth = 0  # negative after surplus closing brackets
    line = line.lstrip(" \t\v\f\r")
    position = 0
    while position < len(line):
        token = _TOKEN.match(line, position)
        if token is None:
            text = line[position : position + 20]
            sentence.errors.append(f"text outside brackets: {shown(text)}; write words as (NN cat)")
            sentence.readable = False
            return sentence
        position = token.end()
        label, word = token["label"], token["word"]
        if word is not None:
            deleted = label in parameters.deleted_labels
            sentence.leaves.append(_Leaf(label, word, deleted, count=int(not deleted)))
        elif label is not None:
            bracket = _Bracket(label, len(sentence.leaves))
            open_brackets.append(bracket)
            sentence.brackets.append(bracket)
            depth += 1
        else:
            if depth < 0:
                sentence.errors.append("a surplus closing bracket; remove it")
            depth -= 1
            if open_brackets:
                open_brackets.pop().end = len(sentence.leaves)
    if depth > 0:
        sentence.errors.append(f"unbalanced: {depth} closing brackets are missing; add them")
    if depth < 0:
        sentence.errors.append(f"unbalanced: {-depth} surplus closing brackets; remove them")
    return sentence


def _compare(
    gold: _Sentence, test: _Sentence, number: int, parameters: Parameters
) -> tuple[Row, list[Problem]]:
    """Return one row of the table and the errors, in EVALB's order."""
    errors = [Problem(number, error, "gold") for error in gold.errors]
    errors += [Problem(number, error, "test") for error in test.errors]
    length = sum(leaf.tag not in parameters.deleted_for_length for leaf in gold.leaves)
    if not (gold.readable and test.readable):
        return Row(number, length, ERROR), errors
    if not test.compared:
        return Row(number, length, SKIPPED), errors
    if len(gold.compared) != len(test.compared):
        _restore_quotes(gold, test, parameters)
    gold_leaves = gold.compared
    test_leaves = test.compared
    mismatch = _mismatch(gold_leaves, test_leaves, parameters)
    if mismatch is not None:
        errors.append(Problem(number, mismatch, "test"))
        return Row(number, length, ERROR), errors
    gold_spans = _counting(gold, parameters)
    test_spans = _counting(test, parameters)
    correct_tags = 0
    for gold_leaf, test_leaf in zip(gold_leaves, test_leaves, strict=True):
        correct_tags += parameters.same_label(gold_leaf.tag, test_leaf.tag)
    row = Row(
        number,
        length,
        status=ERROR if errors else VALID,
        matched=_matches(gold_spans, test_spans, parameters),
        gold=len(gold_spans),
        test=len(test_spans),
        crossing=_crossings(gold_spans, test_spans),
        words=len(gold_leaves),
        correct_tags=correct_tags,
    )
    return row, errors


def _mismatch(gold: list[_Leaf], test: list[_Leaf], parameters: Parameters) -> str | None:
    """Return EVALB's error if the words differ, and None if they are the same."""
    if len(gold) != len(test):
        return (
            f"length unmatch: gold has {len(gold)} words, test has {len(test)}, without words of "
            "deleted tags; both need the same words, and the same tags over punctuation"
        )
    for gold_leaf, test_leaf in zip(gold, test, strict=True):
        if not parameters.same_word(gold_leaf.word, test_leaf.word):
            return f"words unmatch: gold has {gold_leaf.word}, test has {test_leaf.word}"
    return None


def _counting(sentence: _Sentence, parameters: Parameters) -> list[_Span]:
    """Return the brackets that count: not empty, and without a deleted label."""
    places = [0, *accumulate(leaf.count for leaf in sentence.leaves)]
    restored = sum(leaf.count for leaf in sentence.leaves if leaf.deleted)
    spans = []
    for bracket in sentence.brackets:
        label = re.split("[-=]", bracket.label, maxsplit=1)[0]
        # EVALB gives brackets that are never closed the end -1, plus the number of restored quotes.
        end = restored - 1 if bracket.end is None else places[bracket.end]
        span = _Span(label, places[bracket.start], end)
        if span.start != span.end and not parameters.deletes_bracket(span.label):
            spans.append(span)
    return spans


def _matches(gold: list[_Span], test: list[_Span], parameters: Parameters) -> int:
    """Count the gold brackets with a matching test bracket.

    Each test bracket matches once. The first one with the same span is taken.
    """
    unmatched: dict[tuple[int, int], list[str]] = {}
    for span in test:
        unmatched.setdefault(span[1:], []).append(span.label)
    matched = 0
    for span in gold:
        candidates = unmatched.get(span[1:], [])
        for i, label in enumerate(candidates):
            if not parameters.labeled or parameters.same_label(span.label, label):
                del candidates[i]
                matched += 1
                break
    return matched


def _crossings(gold: list[_Span], test: list[_Span]) -> int:
    """Count the test brackets that overlap a gold bracket while neither contains the other."""
    spans = {span[1:] for span in gold}
    crossings = 0
    for t in test:
        if any(a < t.start < b < t.end or t.start < a < t.end < b for a, b in spans):
            crossings += 1
    return crossings


def _restore_quotes(gold: _Sentence, test: _Sentence, parameters: Parameters) -> None:
    """Restore the quotes that are deleted in one tree only (QUOTE_LABEL).

    A restored quote moves the places of later quotes: `_quotes` goes on with the changed count.
    """
    for test_leaf, test_place in _quotes(test, parameters):
        for gold_leaf, gold_place in _quotes(gold, parameters):
            if test_leaf.deleted != gold_leaf.deleted and test_place == gold_place:
                deleted = test_leaf if test_leaf.deleted else gold_leaf
                deleted.count += 1


def _quotes(sentence: _Sentence, parameters: Parameters) -> Iterator[tuple[_Leaf, int]]:
    """Yield the leaves that may be quotation marks, and the places where they are or would be."""
    place = 0
    for leaf in sentence.leaves:
        if leaf.tag in parameters.quote_labels and leaf.word in _QUOTES:
            yield leaf, place + leaf.count * leaf.deleted
        place += leaf.count
