"""Constituency trees in Penn-style brackets: reading, cleaning, writing.

A tree is kept flat, as the events of a walk through it, so that no tree is too deep for anything done here.

A word is anything without ASCII white space and round brackets. A round bracket is written `-LRB-` or `-RRB-` in
treebanks; `[` and other signs stand for themselves, also under the tag -LRB-. A leaf of several words, `(NN in vitro)`,
becomes one word joined by no-break spaces when it is cleaned. Words are told apart by ASCII white space alone: the thin
spaces inside some of CRAFT's words are characters like any other.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from nmt_cli.errors import DataError
from nmt_cli.files.text import read_lines

ROOT_LABEL = "TOP"
"""The root of every cleaned tree."""

WRAPPERS = frozenset(("", "TOP", "ROOT", "S1"))
"""Outermost labels that say nothing: one or several of them become the one root."""

TRACE_TAG = "-NONE-"
_NO_BREAK_SPACE = "\u00a0"
_TOKEN = re.compile(r"[()]|[^ \t\v\f\r()]+")
_FUNCTION = re.compile(r"[-=|]")
_BRACKETS = {"(": "-LRB-", ")": "-RRB-"}


@dataclass(frozen=True, slots=True)
class Open:
    """A constituent begins."""

    label: str


@dataclass(frozen=True, slots=True)
class Leaf:
    """A word under its part-of-speech tag."""

    tag: str
    word: str


@dataclass(frozen=True, slots=True)
class Close:
    """The constituent that was opened last ends."""

    label: str


Event = Open | Leaf | Close


@dataclass(frozen=True, slots=True)
class Tree:
    """One tree: an `Open` and its `Close` around all the rest, or a single `Leaf`."""

    events: tuple[Event, ...]

    @property
    def leaves(self) -> list[Leaf]:
        return [event for event in self.events if isinstance(event, Leaf)]

    @property
    def words(self) -> list[str]:
        return [leaf.word for leaf in self.leaves]

    @property
    def tags(self) -> list[str]:
        return [leaf.tag for leaf in self.leaves]

    @property
    def labels(self) -> list[str]:
        """The constituents' labels, in the order of their opening brackets."""
        return [event.label for event in self.events if isinstance(event, Open)]


class PlacedTree(NamedTuple):
    """A tree and where it begins, for messages: `wsj_0001.mrg:17`."""

    tree: Tree
    place: str


def read_trees(path: Path, consumed: Callable[[int], None] | None = None) -> Iterator[PlacedTree]:
    """The trees of a file, plain or `.gz`, as they stand there: one or several lines a tree, any wrapper.

    Args:
        consumed: as in `read_lines`.

    Raises:
        DataError: as `read_lines`, and as `parse_trees`.
    """
    return parse_trees(read_lines(path, consumed), str(path))


def parse_trees(lines: Iterable[str], name: str) -> Iterator[PlacedTree]:
    """The trees that stand in `lines` of the file `name`.

    Raises:
        DataError: brackets that do not balance, text outside them, a word without a tag, a bracket with nothing in it.
            The message names the file and the line.
    """
    reader = _TreeReader(name)
    for number, line in enumerate(lines, start=1):
        yield from reader.read(line, number)
    reader.finish()


def clean(tree: Tree) -> Tree | None:
    """The tree without traces, empty constituents, functional tags and indices, under the root TOP.

    NP-SBJ-1 and NP=2 become NP, PRT|ADVP becomes PRT; tags stay as they are. What then remains is what EVALB compares,
    chains of equal constituents included. An unlabelled constituent inside the tree is dissolved.

    Returns:
        None where no word is left.
    """
    kept: list[Event] = []
    open_labels: list[str] = []  # of all constituents that are open, "" for those left out
    depth = 0  # of those kept
    waiting: list[Open] = []  # opened, but no word seen in them yet
    for event in tree.events:
        if isinstance(event, Open):
            label = _without_functions(event.label)
            label = "" if depth == 0 and label in WRAPPERS else label
            open_labels.append(label)
            if label:
                depth += 1
                waiting.append(Open(label))
        elif isinstance(event, Leaf):
            if event.tag != TRACE_TAG:
                kept += waiting
                waiting.clear()
                kept.append(Leaf(event.tag, event.word.replace(" ", _NO_BREAK_SPACE)))
        elif label := open_labels.pop():
            depth -= 1
            if waiting:
                waiting.pop()
            else:
                kept.append(Close(label))
    return Tree((Open(ROOT_LABEL), *kept, Close(ROOT_LABEL))) if kept else None


def read_clean_trees(path: Path, consumed: Callable[[int], None] | None = None) -> Iterator[PlacedTree]:
    """The cleaned trees of a file.

    Args:
        consumed: as in `read_lines`.

    Raises:
        DataError: as `read_trees`, and where a tree has no word but traces.
    """
    for tree, place in read_trees(path, consumed):
        cleaned = clean(tree)
        if cleaned is None:
            raise DataError(f"{place}: a tree without words: nothing but traces is in it; take it out of the file")
        yield PlacedTree(cleaned, place)


def tree_line(tree: Tree) -> str:
    """The tree in brackets, on one line: `(TOP (NP (DT the) (NN cat)))`."""
    return "".join(map(_bracketed, tree.events)).removeprefix(" ")


def sentence_line(tree: Tree) -> str:
    """The tree's words, separated by spaces."""
    return " ".join(tree.words)


def line_words(line: str) -> list[str]:
    """The words of an input line, told apart by ASCII white space, with round brackets written as treebanks do."""
    escaped = re.sub(r"[()]", lambda bracket: _BRACKETS[bracket[0]], line)
    return re.findall(r"[^ \t\n\v\f\r]+", escaped)


def with_tags(tree: Tree, tags: Sequence[str]) -> Tree:
    """The tree with `tags` over its words, one for each (gold tags are the custom when brackets are scored).

    Raises:
        ValueError: there are more or fewer tags than words.
    """
    if len(tags) != len(tree.leaves):
        raise ValueError(f"{len(tags)} tags for {len(tree.leaves)} words")
    left = iter(tags)
    return Tree(tuple(Leaf(next(left), e.word) if isinstance(e, Leaf) else e for e in tree.events))


def with_tags_of(test: str, gold: str) -> str:
    """The tree in the line `test` under the tags of that in `gold`, if both are one tree over the same words."""
    tagged = retagged(test, gold)
    return test if tagged is None else tagged


def retagged(test: str, gold: str) -> str | None:
    """The same, and None where they are not: the scorer says what is wrong. Traces need not be the same."""
    try:
        tested, right = (list(parse_trees([line], "")) for line in (test, gold))
    except DataError:
        return None
    if len(tested) != 1 or len(right) != 1:
        return None
    tagged = _under_tags_of(tested[0].tree, right[0].tree)
    return None if tagged is None else tree_line(tagged)


def _under_tags_of(test: Tree, gold: Tree) -> Tree | None:
    if test.words == gold.words:
        return with_tags(test, gold.tags)
    of_words = [leaf for leaf in gold.leaves if leaf.tag != TRACE_TAG]
    if [leaf.word for leaf in test.leaves if leaf.tag != TRACE_TAG] != [leaf.word for leaf in of_words]:
        return None
    left = iter(of_words)
    return with_tags(test, [TRACE_TAG if leaf.tag == TRACE_TAG else next(left).tag for leaf in test.leaves])


def _without_functions(label: str) -> str:
    """NP for NP-SBJ-1, NP=2, NP|ADVP. A label that begins with such a sign (-LRB-) keeps it."""
    return _FUNCTION.split(label, maxsplit=1)[0] or label


def _bracketed(event: Event) -> str:
    match event:
        case Open(label):
            return f" ({label}"
        case Leaf(tag, word):
            return f" ({tag} {word})"
        case _:
            return ")"


@dataclass(slots=True)
class _Bracket:
    """An open bracket: a constituent once a bracket follows in it, a leaf once text does."""

    label: str | None = None
    words: list[str] | None = None
    is_constituent: bool = False


class _TreeReader:
    """Reads tokens one by one; keeps the open brackets on a stack of its own."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.stack: list[_Bracket] = []
        self.events: list[Event] = []
        self.begun = 0  # line of the tree's first bracket
        self.line = 0

    def read(self, line: str, number: int) -> Iterator[PlacedTree]:
        self._check_not_swallowing(line)
        self.line = number
        for token in _TOKEN.findall(line):
            if token == "(":
                self._open()
            elif token != ")":
                self._text(token)
            else:
                self._close()
                if not self.stack:
                    yield PlacedTree(Tree(tuple(self.events)), f"{self.name}:{self.begun}")
                    self.events.clear()

    def finish(self) -> None:
        if self.stack:
            raise self._not_closed("the file's end")

    def _check_not_swallowing(self, line: str) -> None:
        """A bracket missing at the end of one tree must not make the next one a part of it."""
        if not self.stack:
            return
        if not line.strip(" \t\v\f\r"):
            raise self._not_closed(f"the empty line {self.line + 1}")
        first = _TOKEN.findall(line[:16])[:2]
        root = self.stack[0].label or ""
        label = first[1] if len(first) > 1 and first[1] not in "()" else ""
        if line.startswith("(") and root in WRAPPERS and label == root:
            raise self._not_closed(f"the next tree, which begins in line {self.line + 1}")

    def _not_closed(self, where: str) -> DataError:
        return DataError(
            f"{self.name}:{self.begun}: unbalanced brackets: {len(self.stack)} of the tree that begins here are still "
            f"open at {where}; add the missing closing brackets"
        )

    def _error(self, message: str) -> DataError:
        return DataError(f"{self.name}:{self.line}: {message}")

    def _open(self) -> None:
        if self.stack:
            around = self.stack[-1]
            if around.words:
                raise self._untagged(around.words[0])
            if not around.is_constituent:
                around.is_constituent = True
                self.events.append(Open(around.label or ""))
        else:
            self.begun = self.line
        self.stack.append(_Bracket())

    def _text(self, token: str) -> None:
        if not self.stack:
            raise self._error(f"text outside all brackets: {token!r}; a tree is written (S (NP (DT the) (NN cat)) ...)")
        around = self.stack[-1]
        if around.is_constituent:
            raise self._untagged(token)
        if around.label is None:
            around.label = token
        elif around.words is None:
            around.words = [token]
        else:
            around.words.append(token)

    def _untagged(self, word: str) -> DataError:
        return self._error(f"the word {word!r} stands beside brackets without a tag of its own; write (NN {word})")

    def _close(self) -> None:
        if not self.stack:
            raise self._error("unbalanced brackets: a closing bracket where no tree is open; take it out")
        bracket = self.stack.pop()
        label = bracket.label or ""
        if bracket.is_constituent:
            self.events.append(Close(label))
        elif bracket.words:
            self.events.append(Leaf(label, " ".join(bracket.words)))
        elif self.stack:
            raise self._error(f"nothing stands in the bracket ({label}); a leaf is written (NN cat)")
        else:
            raise self._error(f"a tree without words: ({label})")
