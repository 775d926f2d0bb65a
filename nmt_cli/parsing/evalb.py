"""Labelled bracketing recall, precision and F1 as computed by the program EVALB (Sekine and Collins, 1997).

Published parsing scores come from EVALB, the paper's 91.3 (section 6.3) among them. Its rules are reproduced exactly:

- Words under a deleted tag are removed before trees are compared. A wrong tag over a punctuation mark therefore changes
  the sentence length, which makes the sentence an error, unless QUOTE_LABEL lists the confused tags.
- Sentences in error are excluded from all totals, as are those whose output has no word ("skip"). This raises the
  score; `BracketReport.strict` counts them as entirely wrong.
- Functional tags are removed from the labels of brackets (NP-SBJ=1 is NP) but not from part-of-speech tags.
- An empty bracket does not count. The unlabelled bracket of `( (S ...))` counts. In a chain of equal brackets each
  counts.

This module continues where EVALB fails: text outside brackets is an error of the sentence, and the numbers of words and
brackets are not limited.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from nmt_cli.parsing.evalb_parameters import Parameters
from nmt_cli.parsing.evalb_scores import ERROR, SKIPPED, VALID, BracketReport, Problem, Row, Scores

_SPACE = " \t\n\v\f\r"
_TOKEN = re.compile(rf"(?:\((?P<label>[^{_SPACE}()]*)(?:[{_SPACE}]+(?P<word>[^{_SPACE}()]*)\))?|\))[{_SPACE}]*")
_QUOTES = ("'", '"', "/")


@dataclass
class _Bracket:
    label: str
    start: int
    end: int = -1  # never closed


@dataclass
class _Quote:
    """A word that may be a quotation mark, deleted or not, and the position where it would be restored."""

    word: str
    tag: str
    index: int  # of this word, or of the next one if this one is deleted
    bracket: int  # the number of brackets opened before it
    around: list[int]  # the open brackets


@dataclass
class _Sentence:
    """One line: words and brackets after deletion. Spans are in words."""

    words: list[str] = field(default_factory=list)
    tags: list[str] = field(default_factory=list)
    brackets: list[_Bracket] = field(default_factory=list)
    quotes: list[_Quote] = field(default_factory=list)
    length: int = 0
    errors: list[str] = field(default_factory=list)
    readable: bool = True


def score_brackets(test: Iterable[str], gold: Iterable[str], parameters: Parameters) -> BracketReport:
    """Compare two equally long files of trees, one tree a line, as EVALB does."""
    rows: list[Row] = []
    problems: list[Problem] = []
    lost_gold = lost_test = lost_words = 0
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
            lost_gold += len(_counting(gold_tree, parameters))
            lost_test += len(_counting(test_tree, parameters))
            lost_words += len(gold_tree.words)
    total = Scores.of(rows)
    strict = replace(
        total,
        error_sentences=0,
        skipped_sentences=0,
        gold_brackets=total.gold_brackets + lost_gold,
        test_brackets=total.test_brackets + lost_test,
        words=total.words + lost_words,
    )
    return BracketReport(
        rows,
        problems,
        everything=total,
        short=Scores.of([row for row in rows if row.length <= parameters.cutoff_length]),
        strict=strict,
        cutoff_length=parameters.cutoff_length,
        stopped_at=stopped_at,
    )


def _read(line: str, parameters: Parameters) -> _Sentence:
    """Read a line of brackets without recursion. Errors are recorded, not raised."""
    sentence = _Sentence()
    open_brackets: list[int] = []
    depth = 0  # negative after surplus closing brackets
    line = line.lstrip(_SPACE)
    position = 0
    while position < len(line):
        token = _TOKEN.match(line, position)
        if token is None:
            text = line[position : position + 20]
            sentence.errors.append(f"text outside brackets: {text!r}; write words as (NN cat)")
            sentence.readable = False
            return sentence
        if token["word"] is not None:
            _add_word(sentence, token["label"], token["word"], open_brackets, parameters)
        elif token["label"] is not None:
            open_brackets.append(len(sentence.brackets))
            sentence.brackets.append(_Bracket(token["label"], len(sentence.words)))
            depth += 1
        else:
            if depth < 0:
                sentence.errors.append("a surplus closing bracket; remove it")
            depth -= 1
            if open_brackets:
                sentence.brackets[open_brackets.pop()].end = len(sentence.words)
        position = token.end()
    if depth > 0:
        sentence.errors.append(f"unbalanced: {depth} closing brackets are missing; add them")
    if depth < 0:
        sentence.errors.append(f"unbalanced: {-depth} surplus closing brackets; remove them")
    return sentence


def _add_word(sentence: _Sentence, tag: str, word: str, open_brackets: list[int], parameters: Parameters) -> None:
    sentence.length += tag not in parameters.deleted_for_length
    if tag in parameters.quote_labels and word in _QUOTES:
        quote = _Quote(word, tag, len(sentence.words), len(sentence.brackets), list(open_brackets))
        sentence.quotes.append(quote)
    if tag not in parameters.deleted_labels:
        sentence.words.append(word)
        sentence.tags.append(tag)


def _compare(gold: _Sentence, test: _Sentence, number: int, parameters: Parameters) -> tuple[Row, list[Problem]]:
    """Return one row of the table and the errors, in EVALB's order."""
    errors = [Problem(number, error, name) for name, tree in (("gold", gold), ("test", test)) for error in tree.errors]
    if not (gold.readable and test.readable):
        return Row(number, gold.length, ERROR), errors
    if not test.words:
        return Row(number, gold.length, SKIPPED), errors
    if len(gold.words) != len(test.words):
        _restore_quotes(gold, test, parameters)
    if len(gold.words) != len(test.words):
        message = (
            f"length unmatch: gold has {len(gold.words)} words, test has {len(test.words)}, without words of deleted "
            "tags; both need the same words, and the same tags over punctuation"
        )
        return Row(number, gold.length, ERROR), [*errors, Problem(number, message, "test")]
    for one, other in zip(gold.words, test.words, strict=True):
        if not parameters.same_word(one, other):
            message = f"words unmatch: gold has {one}, test has {other}"
            return Row(number, gold.length, ERROR), [*errors, Problem(number, message, "test")]
    gold_brackets, test_brackets = _counting(gold, parameters), _counting(test, parameters)
    row = Row(
        number=number,
        length=gold.length,
        status=ERROR if errors else VALID,
        matched=_matches(gold_brackets, test_brackets, parameters),
        gold=len(gold_brackets),
        test=len(test_brackets),
        crossing=_crossings(gold_brackets, test_brackets),
        words=len(gold.words),
        correct_tags=sum(map(parameters.same_label, gold.tags, test.tags)),
    )
    return row, errors


def _counting(sentence: _Sentence, parameters: Parameters) -> list[_Bracket]:
    """Return the brackets that count, without functional tags: not empty, and without a deleted label."""
    not_empty = (b for b in sentence.brackets if b.start != b.end)
    cut = (_Bracket(re.split("[-=]", b.label, maxsplit=1)[0], b.start, b.end) for b in not_empty)
    return [b for b in cut if not parameters.deletes_bracket(b.label)]


def _matches(gold: list[_Bracket], test: list[_Bracket], parameters: Parameters) -> int:
    """Count the gold brackets with a matching test bracket. Each test bracket matches once; the first one is taken."""
    unmatched: dict[tuple[int, int], list[str]] = {}
    for bracket in test:
        unmatched.setdefault((bracket.start, bracket.end), []).append(bracket.label)
    matched = 0
    for bracket in gold:
        candidates = unmatched.get((bracket.start, bracket.end), [])
        for i, label in enumerate(candidates):
            if not parameters.labeled or parameters.same_label(bracket.label, label):
                del candidates[i]
                matched += 1
                break
    return matched


def _crossings(gold: list[_Bracket], test: list[_Bracket]) -> int:
    """Count the test brackets that overlap a gold bracket while neither contains the other."""
    spans = {(b.start, b.end) for b in gold}
    return sum(any(a < t.start < b < t.end or t.start < a < t.end < b for a, b in spans) for t in test)


def _restore_quotes(gold: _Sentence, test: _Sentence, parameters: Parameters) -> None:
    """Restore deleted quotes whose partner in the other tree is not deleted (QUOTE_LABEL), in place."""
    for i, quote in enumerate(test.quotes):
        index = quote.index
        for j, partner in enumerate(gold.quotes):
            if partner.index != index or partner.tag == quote.tag:
                continue
            gold_deleted, test_deleted = (q.tag in parameters.deleted_labels for q in (partner, quote))
            if gold_deleted and not test_deleted:
                _restore_quote(gold, j)
            elif test_deleted and not gold_deleted:
                _restore_quote(test, i)


def _restore_quote(sentence: _Sentence, which: int) -> None:
    quote = sentence.quotes[which]
    sentence.words.insert(quote.index, quote.word)
    sentence.tags.insert(quote.index, quote.tag)
    for bracket in sentence.brackets[quote.bracket :]:
        bracket.start += 1
        bracket.end += 1
    for around in quote.around:
        sentence.brackets[around].end += 1
    for later in sentence.quotes[which:]:
        later.index += 1
