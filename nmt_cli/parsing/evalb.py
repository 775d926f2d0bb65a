"""Labelled bracketing recall, precision and F1 as the program EVALB counts them (Sekine and Collins, 1997).

Published parsing scores, the paper's 91.3 (section 6.3) among them, come from that program, so its habits are kept to
the last digit, the odd ones too:

- Words under a deleted tag vanish before anything is compared. A wrong tag under a punctuation mark therefore makes the
  lengths differ, and the whole sentence an error, unless QUOTE_LABEL tells that the tags are easily confused.
- A sentence in error is left out of every total; so is one whose output has no word ("skip"). Both flatter the score:
  `Scores.strict` counts them as entirely wrong.
- Functional tags are cut off brackets (NP-SBJ=1 is NP) but not off the tags of words.
- A bracket around no word does not count; the unlabelled one of `( (S ...))` does; a chain of equal ones counts each.

Where the original loses its way (text outside the brackets, more than 200 words or brackets), this one goes on: such a
sentence is an error like any other, and nothing has a limit.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from nmt_cli.errors import DataError
from nmt_cli.parsing.evalb_parameters import Parameters

VALID, ERROR, SKIPPED = 0, 1, 2
"""The states of a sentence, as the table prints them."""

_SPACE = " \t\n\v\f\r"
_LABEL = re.compile(rf"\(([^{_SPACE}()]*)")
_WORD = re.compile(rf"[{_SPACE}]+([^{_SPACE}()]*)\)")
_GAP = re.compile(rf"[{_SPACE}]*")
_QUOTES = ("'", '"', "/")


@dataclass
class _Bracket:
    label: str
    start: int
    end: int = -1  # never closed

    @property
    def span(self) -> tuple[int, int]:
        return self.start, self.end


@dataclass
class _Quote:
    """A word that may be a quotation mark, deleted or not, and where it would have to be put back."""

    word: str
    tag: str
    index: int  # of the first word that follows, or of itself
    bracket: int  # brackets opened before it
    around: list[int]  # those that are open where it stands


@dataclass
class _Sentence:
    """One line: its words and brackets after deletion, spans in words."""

    words: list[str] = field(default_factory=list)
    tags: list[str] = field(default_factory=list)
    brackets: list[_Bracket] = field(default_factory=list)
    quotes: list[_Quote] = field(default_factory=list)
    length: int = 0
    errors: list[str] = field(default_factory=list)
    readable: bool = True


@dataclass(frozen=True)
class Row:
    """One sentence's line of the table."""

    number: int
    length: int  # gold words, without those under tags that are deleted for the length
    status: int = ERROR
    matched: int = 0
    gold: int = 0
    test: int = 0
    crossing: int = 0  # brackets of the test tree that cross some bracket of the gold tree
    words: int = 0
    correct_tags: int = 0


@dataclass(frozen=True)
class Scores:
    """Totals over sentences, and what is made of them. Percentages are 0 where there is nothing to divide by."""

    sentences: int = 0
    errors: int = 0
    skipped: int = 0
    matched: int = 0
    gold: int = 0
    test: int = 0
    complete: int = 0
    crossing: int = 0
    without_crossing: int = 0
    at_most_two_crossing: int = 0
    words: int = 0
    correct_tags: int = 0

    @property
    def valid(self) -> int:
        return self.sentences - self.errors - self.skipped

    @property
    def recall(self) -> float:
        return percentage(self.matched, self.gold)

    @property
    def precision(self) -> float:
        return percentage(self.matched, self.test)

    @property
    def f1(self) -> float:
        total = self.precision + self.recall
        return 2 * self.precision * self.recall / total if total else 0.0

    @property
    def complete_match(self) -> float:
        return percentage(self.complete, self.valid)

    @property
    def average_crossing(self) -> float:
        return self.crossing / self.valid if self.valid else 0.0

    @property
    def no_crossing(self) -> float:
        return percentage(self.without_crossing, self.valid)

    @property
    def two_or_less_crossing(self) -> float:
        return percentage(self.at_most_two_crossing, self.valid)

    @property
    def tagging_accuracy(self) -> float:
        return percentage(self.correct_tags, self.words)

    def with_nothing_right(self, gold: int, test: int, words: int) -> Scores:
        """The totals with one more sentence that has so many brackets and words, and nothing of it right.

        It is no complete match, nor one without crossings; how many of its brackets cross cannot be said, so none is
        counted, and `average_crossing` says nothing.
        """
        return replace(
            self,
            sentences=self.sentences + 1,
            gold=self.gold + gold,
            test=self.test + test,
            words=self.words + words,
        )

    def with_row(self, row: Row) -> Scores:
        """The totals with one more sentence."""
        valid = row.status == VALID
        return Scores(
            sentences=self.sentences + 1,
            errors=self.errors + (row.status == ERROR),
            skipped=self.skipped + (row.status == SKIPPED),
            matched=self.matched + valid * row.matched,
            gold=self.gold + valid * row.gold,
            test=self.test + valid * row.test,
            complete=self.complete + (valid and row.matched == row.gold == row.test),
            crossing=self.crossing + valid * row.crossing,
            without_crossing=self.without_crossing + (valid and row.crossing == 0),
            at_most_two_crossing=self.at_most_two_crossing + (valid and row.crossing <= 2),
            words=self.words + valid * row.words,
            correct_tags=self.correct_tags + valid * row.correct_tags,
        )


@dataclass(frozen=True)
class Problem:
    """Something wrong with a sentence: the line's number in both files, and what it is."""

    line: int
    message: str
    tree: str  # whose line it is, "gold" or "test"; where the two differ, the test's


@dataclass(frozen=True)
class BracketReport:
    """All that EVALB prints, and what it leaves out."""

    rows: list[Row]
    problems: list[Problem]
    everything: Scores
    short: Scores  # sentences of at most `cutoff_length` words
    strict: Scores  # sentences in error and skipped ones counted as entirely wrong
    cutoff_length: int
    gold_unlabelled: int  # trees with a bracket that has no label and counts all the same
    test_unlabelled: int
    stopped_at: int | None  # the line at which there were more errors than the parameters allow


def percentage(part: int, whole: int) -> float:
    """100 part / whole, and 0 of nothing."""
    return 100.0 * part / whole if whole > 0 else 0.0


def score_brackets(test: Iterable[str], gold: Iterable[str], parameters: Parameters) -> BracketReport:
    """Compares two files of trees, one tree a line, as EVALB does.

    Raises:
        DataError: one has more lines than the other.
    """
    rows: list[Row] = []
    problems: list[Problem] = []
    everything, short, strict = Scores(), Scores(), Scores()
    gold_unlabelled = test_unlabelled = 0
    stopped_at = None
    for number, (gold_line, test_line) in enumerate(_pairs(gold, test), start=1):
        gold_tree, test_tree = _read(gold_line, parameters), _read(test_line, parameters)
        row, errors = _compare(gold_tree, test_tree, number, parameters)
        problems += errors
        if len(problems) > parameters.max_error + 1:
            stopped_at = number
            break
        rows.append(row)
        everything = everything.with_row(row)
        if row.length <= parameters.cutoff_length:
            short = short.with_row(row)
        if row.status == VALID:
            strict = strict.with_row(row)
            gold_unlabelled += _has_unlabelled(gold_tree)
            test_unlabelled += _has_unlabelled(test_tree)
        else:
            gold_brackets, test_brackets = (len(_counting(tree, parameters)) for tree in (gold_tree, test_tree))
            strict = strict.with_nothing_right(gold_brackets, test_brackets, len(gold_tree.words))
    return BracketReport(
        rows,
        problems,
        everything,
        short,
        strict,
        parameters.cutoff_length,
        gold_unlabelled,
        test_unlabelled,
        stopped_at,
    )


def _pairs(gold: Iterable[str], test: Iterable[str]) -> Iterable[tuple[str, str]]:
    try:
        yield from zip(gold, test, strict=True)
    except ValueError as error:
        raise DataError(
            "the two files of trees have different numbers of lines; there must be one tree a line, in the same order, "
            "and an empty line where the parser found none"
        ) from error


def _read(line: str, parameters: Parameters) -> _Sentence:
    """Reads a line of brackets without recursion. What is wrong with it is noted, not raised."""
    sentence = _Sentence()
    open_brackets: list[int] = []
    depth = 0  # below zero once there were more closing brackets than opening ones
    position = _skip_space(line, 0)
    while position < len(line):
        if line[position] == "(":
            label = _LABEL.match(line, position)
            assert label is not None
            word = _WORD.match(line, label.end())
            if word:
                _add_word(sentence, label[1], word[1], open_brackets, parameters)
                position = word.end()
            else:
                open_brackets.append(len(sentence.brackets))
                sentence.brackets.append(_Bracket(label[1], len(sentence.words)))
                depth += 1
                position = label.end()
        elif line[position] == ")":
            if depth < 0:
                sentence.errors.append("a closing bracket too many; take it out")
            depth -= 1
            if open_brackets:
                sentence.brackets[open_brackets.pop()].end = len(sentence.words)
            position += 1
        else:
            text = line[position : position + 20]
            sentence.errors.append(f"text that stands in no bracket of its own: {text!r}; a word is written (NN cat)")
            sentence.readable = False
            return sentence
        position = _skip_space(line, position)
    if depth > 0:
        sentence.errors.append(f"unbalanced: closing brackets are missing, {depth} in all; add them")
    if depth < 0:
        sentence.errors.append(f"unbalanced: closing brackets that close nothing, {-depth} in all; take them out")
    return sentence


def _skip_space(line: str, position: int) -> int:
    gap = _GAP.match(line, position)
    assert gap is not None
    return gap.end()


def _add_word(sentence: _Sentence, tag: str, word: str, open_brackets: list[int], parameters: Parameters) -> None:
    index = len(sentence.words)
    sentence.length += tag not in parameters.deleted_for_length
    if tag in parameters.quote_labels and word in _QUOTES:
        sentence.quotes.append(_Quote(word, tag, index, len(sentence.brackets), list(open_brackets)))
    if tag not in parameters.deleted_labels:
        sentence.words.append(word)
        sentence.tags.append(tag)


def _compare(gold: _Sentence, test: _Sentence, number: int, parameters: Parameters) -> tuple[Row, list[Problem]]:
    """One row of the table, and the errors, in the order in which the original finds them."""
    errors = [Problem(number, error, name) for name, tree in (("gold", gold), ("test", test)) for error in tree.errors]
    if not (gold.readable and test.readable):
        return Row(number, gold.length, ERROR), errors
    if not test.words:
        return Row(number, gold.length, SKIPPED), errors
    if len(gold.words) != len(test.words):
        _put_quotes_back(gold, test, parameters)
    if len(gold.words) != len(test.words):
        message = (
            f"length unmatch: of gold's words {len(gold.words)} count, of test's {len(test.words)}; both need the same "
            "words, and tags over punctuation that are deleted in both"
        )
        return Row(number, gold.length, ERROR), [*errors, Problem(number, message, "test")]
    for one, other in zip(gold.words, test.words, strict=True):
        if not parameters.same_word(one, other):
            message = f"words unmatch: gold has {one}, test has {other}; both need the same sentence in this line"
            return Row(number, gold.length, ERROR), [*errors, Problem(number, message, "test")]
    return _counted(gold, test, number, ERROR if errors else VALID, parameters), errors


def _counted(gold: _Sentence, test: _Sentence, number: int, status: int, parameters: Parameters) -> Row:
    gold_brackets, test_brackets = _counting(gold, parameters), _counting(test, parameters)
    return Row(
        number=number,
        length=gold.length,
        status=status,
        matched=_matches(gold_brackets, test_brackets, parameters),
        gold=len(gold_brackets),
        test=len(test_brackets),
        crossing=_crossings(gold_brackets, test_brackets, len(gold.words)),
        words=len(gold.words),
        correct_tags=sum(map(parameters.same_label, gold.tags, test.tags)),
    )


def _counting(sentence: _Sentence, parameters: Parameters) -> list[_Bracket]:
    """The brackets that count, without functional tags: around at least one word, and not under a deleted label."""
    around_words = (b for b in sentence.brackets if b.start != b.end)
    cut = (_Bracket(re.split("[-=]", b.label, maxsplit=1)[0], b.start, b.end) for b in around_words)
    return [b for b in cut if not parameters.deletes_bracket(b.label)]


def _has_unlabelled(sentence: _Sentence) -> bool:
    """Whether a bracket without a label counts, as that of `( (S ...))` does; no parameter can delete one."""
    return any(not bracket.label and bracket.start != bracket.end for bracket in sentence.brackets)


def _matches(gold: list[_Bracket], test: list[_Bracket], parameters: Parameters) -> int:
    """How many gold brackets find a test bracket, each of which serves once; the first that fits is taken."""
    left: dict[tuple[int, int], list[str]] = {}
    for bracket in test:
        left.setdefault(bracket.span, []).append(bracket.label)
    matched = 0
    for bracket in gold:
        candidates = left.get(bracket.span, [])
        for i, label in enumerate(candidates):
            if not parameters.labeled or parameters.same_label(bracket.label, label):
                del candidates[i]
                matched += 1
                break
    return matched


def _crossings(gold: list[_Bracket], test: list[_Bracket], length: int) -> int:
    """How many test brackets overlap some gold bracket, neither containing the other.

    A test bracket (s, e) is crossed from the left by a gold bracket (a, b) with a < s < b < e, so it is enough to know,
    for each s, the smallest b; and likewise from the right. That is quick however long the sentence.
    """
    nearest_end, nearest_start = [length] * (length + 1), [0] * (length + 1)
    proper_gold = [b for b in gold if b.start < b.end]
    for bracket in sorted(proper_gold, key=lambda b: -b.end):  # the smallest end is written last
        nearest_end[bracket.start + 1 : bracket.end] = [bracket.end] * (bracket.end - bracket.start - 1)
    for bracket in sorted(proper_gold, key=lambda b: b.start):
        nearest_start[bracket.start + 1 : bracket.end] = [bracket.start] * (bracket.end - bracket.start - 1)
    proper_test = (b for b in test if b.start < b.end)
    return sum(nearest_end[b.start] < b.end or nearest_start[b.end] > b.start for b in proper_test)


def _put_quotes_back(gold: _Sentence, test: _Sentence, parameters: Parameters) -> None:
    """Puts back deleted quotes whose partner in the other tree is not deleted (QUOTE_LABEL), in both trees in place."""
    for i, quote in enumerate(test.quotes):
        index = quote.index
        for j, partner in enumerate(gold.quotes):
            if partner.index != index or partner.tag == quote.tag:
                continue
            gold_deleted, test_deleted = (q.tag in parameters.deleted_labels for q in (partner, quote))
            if gold_deleted and not test_deleted:
                _put_back(gold, j)
            elif test_deleted and not gold_deleted:
                _put_back(test, i)


def _put_back(sentence: _Sentence, which: int) -> None:
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
