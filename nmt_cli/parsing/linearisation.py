"""Trees as sequences of symbols and back, in two ways; both leave the root TOP out, which is always there.

`vinyals` (Vinyals et al. 2015, which section 6.3 of the paper follows): `(S (NP XX XX )NP (VP XX )VP )S`. Every word is
XX, brackets carry labels at both ends.

`authors` (the code of the paper's authors): `S NP DT NN /NP VP VBZ /VP /S`. Every word is its tag, constituents end in
`/NP`. Which symbol is a label and which a tag must be known, so this way is told the treebank's labels; the few that
would be mistaken are marked: `~X` is a tag that looks like a label or like a mark, `~(X` a label not among the known.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields

from nmt_cli.errors import DataError
from nmt_cli.interfaces import SPECIAL_SYMBOLS
from nmt_cli.parsing.trees import ROOT_LABEL, Close, Event, Leaf, Open, Tree

UNKNOWN_TAG = "XX"
"""The tag over a word whose part of speech is not in the sequence."""

FLAT_LABEL = "S"
"""The one constituent of the tree that is given where a sequence says nothing at all."""

_NAME = re.compile(r"[^ \t\n\v\f\r()]+")


@dataclass(frozen=True, slots=True)
class Tag:
    """The symbol of one word."""

    tag: str


Meaning = Open | Tag | Close
"""What a symbol of the target says. None stands for a symbol that says nothing."""


class Linearisation(ABC):
    """One way to write a tree as symbols. Every symbol has one meaning, whatever stands around it."""

    def symbols(self, tree: Tree) -> list[str]:
        """The symbols of a cleaned tree."""
        return [self._symbol(event) for event in tree.events[1:-1]]

    @abstractmethod
    def meaning(self, symbol: str) -> Meaning | None:
        """What the symbol says, None if nothing."""

    @abstractmethod
    def _symbol(self, event: Event) -> str: ...


@dataclass(frozen=True)
class Vinyals(Linearisation):
    """`(NP XX )NP`."""

    def _symbol(self, event: Event) -> str:
        match event:
            case Open(label):
                return f"({label}"
            case Close(label):
                return f"){label}"
            case _:
                return UNKNOWN_TAG

    def meaning(self, symbol: str) -> Meaning | None:
        if symbol == UNKNOWN_TAG:
            return Tag(symbol)
        if symbol[:1] not in ("(", ")") or not _NAME.fullmatch(symbol, 1):
            return None
        return Open(symbol[1:]) if symbol.startswith("(") else Close(symbol[1:])


@dataclass(frozen=True)
class Authors(Linearisation):
    """`NP NN /NP`.

    Args:
        labels: of the treebank's constituents.
    """

    labels: frozenset[str]

    def _symbol(self, event: Event) -> str:
        match event:
            case Open(label):
                return label if self._is_label(label) else f"~({label}"
            case Close(label):
                return f"/{label}"
            case Leaf(tag, _):
                return f"~{tag}" if _needs_mark(tag) or tag in self.labels else tag

    def meaning(self, symbol: str) -> Meaning | None:
        marked_label, marked, ending = (symbol.startswith(mark) for mark in ("~(", "~", "/"))
        name = symbol[2 if marked_label else 1 if marked or ending else 0 :]
        if not _NAME.fullmatch(name) or symbol in SPECIAL_SYMBOLS:
            return None
        if ending:
            return Close(name)
        return Open(name) if marked_label or self._is_label(symbol) else Tag(name)

    def _is_label(self, symbol: str) -> bool:
        return symbol in self.labels and not _needs_mark(symbol)


def _needs_mark(name: str) -> bool:
    """Whether a tag or a label would be read as something else."""
    return name.startswith(("~", "/")) or name in SPECIAL_SYMBOLS


@dataclass(frozen=True)
class Repairs:
    """How many repairs of each kind a sequence, or many, needed."""

    meaningless: int = 0  # symbols that say nothing, dropped
    mismatched: int = 0  # closing brackets of a constituent that is not open, taken for the innermost one's
    unopened: int = 0  # closing brackets where nothing was open, dropped
    unclosed: int = 0  # missing closing brackets, added
    empty: int = 0  # constituents without a word, dropped
    surplus_words: int = 0  # leaves beyond the input's words, dropped
    missing_words: int = 0  # input words without a leaf, added at the end
    flat: int = 0  # trees of which nothing could be read

    def __add__(self, other: Repairs) -> Repairs:
        return Repairs(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    def __bool__(self) -> bool:
        return any(asdict(self).values())


def repair(symbols: Iterable[str], words: Sequence[str], way: Linearisation) -> tuple[Tree, Repairs]:
    """The tree that `symbols` describe, over exactly `words`, whatever the symbols are.

    Words without a leaf are added to the outermost constituent that was read last. Where not one leaf was read, all
    words hang flat under one S; without words the tree is a bare root.

    Returns:
        A tree under the root TOP, and what had to be repaired: nothing at all for a well-formed sequence.
    """
    builder = _Builder(words)
    for symbol in symbols:
        builder.add(way.meaning(symbol))
    events = builder.finish()
    return Tree((Open(ROOT_LABEL), *events, Close(ROOT_LABEL))), Repairs(**builder.count)


def read_back(symbols: Iterable[str], words: Sequence[str], way: Linearisation) -> Tree:
    """The tree of a well-formed sequence.

    Raises:
        DataError: it is not well-formed, or not over these words; the message says what is wrong.
    """
    tree, repairs = repair(symbols, words, way)
    if repairs:
        wrong = ", ".join(f"{name.replace('_', ' ')} {count}" for name, count in asdict(repairs).items() if count)
        raise DataError(f"these symbols are no tree over the {len(words)} words given: {wrong}")
    return tree


class _Builder:
    """Takes meanings one by one and keeps its events a well-formed beginning of a tree."""

    def __init__(self, words: Sequence[str]) -> None:
        self.words = words
        self.used = 0
        self.events: list[Event] = []
        self.stack: list[str] = []
        self.open_labels: Counter[str] = Counter()
        self.count: Counter[str] = Counter()

    def add(self, meaning: Meaning | None) -> None:
        match meaning:
            case None:
                self.count["meaningless"] += 1
            case Open(label):
                self.events.append(meaning)
                self.stack.append(label)
                self.open_labels[label] += 1
            case Tag(tag):
                self._add_leaf(tag)
            case Close(label):
                self._add_close(label)

    def _add_leaf(self, tag: str) -> None:
        if self.used == len(self.words):
            self.count["surplus_words"] += 1
        else:
            self.events.append(Leaf(tag, self.words[self.used]))
            self.used += 1

    def _add_close(self, label: str) -> None:
        if not self.stack:
            self.count["unopened"] += 1
        elif not self.open_labels[label]:
            self.count["mismatched"] += 1
            self._close()
        else:
            while self.stack[-1] != label:
                self.count["unclosed"] += 1
                self._close()
            self._close()

    def _close(self) -> None:
        """Ends the innermost constituent, or takes it away if nothing is in it."""
        label = self.stack.pop()
        self.open_labels[label] -= 1
        if isinstance(self.events[-1], Open):
            self.events.pop()
            self.count["empty"] += 1
        else:
            self.events.append(Close(label))

    def finish(self) -> list[Event]:
        if self.words and not self.used:
            self.count["flat"] += 1
            return [Open(FLAT_LABEL), *self._missing(), Close(FLAT_LABEL)]
        self.count["missing_words"] += len(self.words) - self.used
        self.count["unclosed"] += len(self.stack)
        while len(self.stack) > 1:
            self._close()
        if self.stack:
            self.events += self._missing()
            self._close()
        else:
            ending = [self.events.pop()] if self.events and isinstance(self.events[-1], Close) else []
            self.events += [*self._missing(), *ending]
        return self.events

    def _missing(self) -> list[Event]:
        return [Leaf(UNKNOWN_TAG, word) for word in self.words[self.used :]]
