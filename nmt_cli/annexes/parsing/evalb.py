"""Labelled bracketing recall, precision and F1 as computed by the program EVALB (Sekine and
Collins, 1997).

Published parsing scores come from EVALB, the paper's 91.3 (section 6.3) among them. Its rules are
reproduced exactly:

- Words under a deleted tag are removed before trees are compared. A wrong tag over a punctuation
  mark therefore changes the sentence length, which makes the sentence an error, unless QUOTE_LABEL
  lists the confused tags.
- Sentences in error are excluded from all totals, as are those whose output has no word ("skip").
  This raises the score; `BracketReport.strict` counts them as entirely wrong.
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
    # Among the words that are compared: 1 unless deleted; EVALB may restore a quote, even twice.
    count: int


@dataclass
class _Bracket:
    """A bracket. The span is in leaves."""

    label: str
    start: int
    end: int = -1  # never closed


@dataclass
class _Sentence:
    """One line as EVALB reads it."""

    leaves: list[_Leaf] = field(default_factory=list)
    brackets: list[_Bracket] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    readable: bool = True

    @property
    def kept(self) -> list[_Leaf]:
        return [leaf for leaf in self.leaves for _ in range(leaf.count)]


class _Span(NamedTuple):
    """A bracket that counts, without functional tags. Start and end are in kept words."""

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
        gold_tree, test_tree = _read(gold_line, parameters), _read(test_line, parameters)
        row, errors = _compare(gold_tree, test_tree, number, parameters)
        problems += errors
        if len(problems) > parameters.max_error + 1:
            stopped_at = number
            break
        rows.append(row)
        if row.status != VALID:
            brackets, others = (len(_counting(tree, parameters)) for tree in (gold_tree, test_tree))
            row = Row(
                number, row.length, WRONG, gold=brackets, test=others, words=len(gold_tree.kept)
            )
        strict_rows.append(row)
    return BracketReport(
        rows,
        problems,
        everything=figures(rows),
        short=figures([row for row in rows if row.length <= parameters.cutoff_length]),
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
            sentence.leaves.append(_Leaf(label, word, deleted, int(not deleted)))
        elif label is not None:
            open_brackets.append(_Bracket(label, len(sentence.leaves)))
            sentence.brackets.append(open_brackets[-1])
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
    errors = [
        Problem(number, error, name)
        for name, tree in (("gold", gold), ("test", test))
        for error in tree.errors
    ]
    length = sum(leaf.tag not in parameters.deleted_for_length for leaf in gold.leaves)
    if not (gold.readable and test.readable):
        return Row(number, length, ERROR), errors
    if not test.kept:
        return Row(number, length, SKIPPED), errors
    if len(gold.kept) != len(test.kept):
        _restore_quotes(gold, test, parameters)
    if mismatch := _mismatch(gold.kept, test.kept, parameters):
        return Row(number, length, ERROR), [*errors, Problem(number, mismatch, "test")]
    gold_spans, test_spans = _counting(gold, parameters), _counting(test, parameters)
    row = Row(
        number,
        length,
        status=ERROR if errors else VALID,
        matched=_matches(gold_spans, test_spans, parameters),
        gold=len(gold_spans),
        test=len(test_spans),
        crossing=_crossings(gold_spans, test_spans),
        words=len(gold.kept),
        correct_tags=sum(
            parameters.same_label(g.tag, t.tag) for g, t in zip(gold.kept, test.kept, strict=True)
        ),
    )
    return row, errors


def _mismatch(gold: list[_Leaf], test: list[_Leaf], parameters: Parameters) -> str | None:
    if len(gold) != len(test):
        return (
            f"length unmatch: gold has {len(gold)} words, test has {len(test)}, without words of "
            "deleted "
            "tags; both need the same words, and the same tags over punctuation"
        )
    for one, other in zip(gold, test, strict=True):
        if not parameters.same_word(one.word, other.word):
            return f"words unmatch: gold has {one.word}, test has {other.word}"
    return None


def _counting(sentence: _Sentence, parameters: Parameters) -> list[_Span]:
    """Return the brackets that count: not empty, and without a deleted label."""
    restored = sum(leaf.count for leaf in sentence.leaves if leaf.deleted)
    # The last: a bracket not closed.
    place = [0, *accumulate(leaf.count for leaf in sentence.leaves), restored - 1]
    spans = (
        _Span(
            re.split("[-=]", bracket.label, maxsplit=1)[0], place[bracket.start], place[bracket.end]
        )
        for bracket in sentence.brackets
    )
    return [
        span
        for span in spans
        if span.start != span.end and not parameters.deletes_bracket(span.label)
    ]


def _matches(gold: list[_Span], test: list[_Span], parameters: Parameters) -> int:
    """Count the gold brackets with a matching test bracket. Each test bracket matches once; the
    first one is taken.
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
    return sum(
        any(a < t.start < b < t.end or t.start < a < t.end < b for a, b in spans) for t in test
    )


def _restore_quotes(gold: _Sentence, test: _Sentence, parameters: Parameters) -> None:
    """Restore deleted quotes whose partner, at the same word in the other tree, is not deleted
    (QUOTE_LABEL).
    """
    for one, place in _quotes(test, parameters):
        for other, other_place in _quotes(gold, parameters):
            if one.deleted != other.deleted and place == other_place:
                (one if one.deleted else other).count += 1


def _quotes(sentence: _Sentence, parameters: Parameters) -> Iterator[tuple[_Leaf, int]]:
    """Yield the leaves that may be quotation marks, each with the place where it is or would be
    restored.
    """
    place = 0
    for leaf in sentence.leaves:
        if leaf.tag in parameters.quote_labels and leaf.word in _QUOTES:
            yield leaf, place + leaf.count * leaf.deleted
        place += leaf.count
