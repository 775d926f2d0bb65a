"""Trees as sequences of symbols and back, in two forms.

Both forms leave out the root TOP, which every tree has.

`vinyals` (Vinyals et al. 2015, followed by section 6.3 of the paper): `(S (NP XX XX )NP (VP XX )VP
)S`. Every word is XX. Opening and closing brackets carry labels.

`authors` (the code of the paper's authors): `S NP DT NN /NP VP VBZ /VP /S`. Every word is its tag.
`/NP` ends a constituent. To tell labels from tags, this form needs the labels of the treebank. Two
marks resolve conflicts: `~X` is a tag that looks like a label or begins with a mark, and `~(X` is a
label that is not in the treebank.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from nmt_cli.annexes.parsing.trees import ROOT_LABEL, Close, Event, Leaf, Open, Tree
from nmt_cli.interfaces import SPECIAL_SYMBOLS

UNKNOWN_TAG = "XX"  # the tag of a word whose part of speech is not in the sequence
FLAT_LABEL = "S"  # the label of the only constituent if a sequence has no leaf

_NAME = re.compile(r"[^\s()]+", re.ASCII)


class Linearisation(ABC):
    """A way to write trees as symbols. The meaning of a symbol does not depend on its context."""

    def symbols(self, tree: Tree) -> list[str]:
        """Return the symbols of a cleaned tree."""
        return [self.symbol(event) for event in tree.events[1:-1]]

    @abstractmethod
    def symbol(self, event: Event) -> str: ...

    @abstractmethod
    def meaning(self, symbol: str) -> Event | None:
        """Return the meaning of the symbol, or None. A leaf has no word."""


@dataclass(frozen=True)
class Vinyals(Linearisation):
    """`(NP XX )NP`."""

    def symbol(self, event: Event) -> str:
        match event:
            case Open(label):
                return f"({label}"
            case Close(label):
                return f"){label}"
            case _:
                return UNKNOWN_TAG

    def meaning(self, symbol: str) -> Event | None:
        if symbol == UNKNOWN_TAG:
            return Leaf(symbol, "")
        if not _NAME.fullmatch(symbol, 1):
            return None
        if symbol.startswith("("):
            return Open(symbol[1:])
        if symbol.startswith(")"):
            return Close(symbol[1:])
        return None


@dataclass(frozen=True)
class Authors(Linearisation):
    """`NP NN /NP`."""

    labels: frozenset[str]  # of the treebank's constituents

    def symbol(self, event: Event) -> str:
        match event:
            case Open(label):
                return label if self._is_label(label) else f"~({label}"
            case Close(label):
                return f"/{label}"
            case Leaf(tag, _):
                needs_mark = _needs_mark(tag) or tag in self.labels
                return f"~{tag}" if needs_mark else tag

    def meaning(self, symbol: str) -> Event | None:
        event: Event
        if symbol.startswith("~("):
            name = symbol[2:]
            event = Open(name)
        elif symbol.startswith("~"):
            name = symbol[1:]
            event = Leaf(name, "")
        elif symbol.startswith("/"):
            name = symbol[1:]
            event = Close(name)
        else:
            name = symbol
            event = Open(name) if self._is_label(name) else Leaf(name, "")
        if symbol in SPECIAL_SYMBOLS or not _NAME.fullmatch(name):
            return None
        return event

    def _is_label(self, symbol: str) -> bool:
        return symbol in self.labels and not _needs_mark(symbol)


def _needs_mark(name: str) -> bool:
    return name.startswith(("~", "/")) or name in SPECIAL_SYMBOLS


def repair(
    symbols: Iterable[str],
    words: Sequence[str],
    form: Linearisation,
    likely_tags: Sequence[str] = (),
) -> tuple[Tree, dict[str, int]]:
    """Return the tree described by `symbols` over exactly `words`, and counts of repairs by kind.

    `likely_tags` has one tag for each word, or nothing: then the first leaf is that of the first
    word, and so on. With it, leaves and words are aligned with the fewest differences of tags.
    Leaves keep their places if they are as many as the words and no alignment has fewer
    differences.

    The kinds of repairs:

    - meaningless: symbols without meaning, dropped.
    - mismatched: closing brackets of a constituent that is not open. The innermost one is closed
      instead.
    - unopened: closing brackets while no constituent is open, dropped.
    - unclosed: closing brackets added.
    - empty: constituents without a word, dropped.
    - surplus words: leaves without a word, dropped.
    - missing words: words without a leaf, added after the leaf before them. Those after all leaves
      are added to the last outermost constituent.
    - flat: 1 if there was no leaf at all. All words are then the children of one constituent S.
    """
    meanings = [form.meaning(symbol) for symbol in symbols]
    tags = [meaning.tag for meaning in meanings if isinstance(meaning, Leaf)]
    builder = _Builder(_leaves(tags, words, likely_tags))
    for meaning in meanings:
        builder.add(meaning)
    tree = Tree((Open(ROOT_LABEL), *builder.finish(), Close(ROOT_LABEL)))
    return tree, {kind: count for kind, count in builder.repairs.items() if count}


def _leaves(
    tags: Sequence[str], words: Sequence[str], likely_tags: Sequence[str]
) -> list[list[Leaf]]:
    """Return the leaves in place of each leaf of a sequence, and those after all of them.

    Nothing is in place of a surplus leaf, and missing words are beside another leaf.
    """
    leaves: list[list[Leaf]] = [[] for _ in range(len(tags) + 1)]
    if not likely_tags or _by_place(tags, likely_tags):
        for place, (tag, word) in enumerate(zip(tags, words, strict=False)):
            leaves[place].append(Leaf(tag, word))
        leaves[-1] = _missing(words[len(tags) :])
        return leaves
    from rapidfuzz.distance import Levenshtein

    for operation in Levenshtein.opcodes(tags, likely_tags):
        place = operation.src_start
        stretch = words[operation.dest_start : operation.dest_end]
        if operation.tag == "insert":
            # With the fewest differences, a leaf beside a missing word has a word of its own.
            before = place - 1 if 0 < place < len(tags) else place
            leaves[before] += _missing(stretch)
        elif operation.tag != "delete":
            for matched, word in enumerate(stretch, place):
                leaves[matched].append(Leaf(tags[matched], word))
    return leaves


def _by_place(tags: Sequence[str], likely_tags: Sequence[str]) -> bool:
    """Whether there are as many tags, and no alignment has fewer differences than their places."""
    # Training imports this file, also on machines without rapidfuzz.
    from rapidfuzz.distance import Hamming, Levenshtein

    return len(tags) == len(likely_tags) and (
        Hamming.distance(tags, likely_tags) == Levenshtein.distance(tags, likely_tags)
    )


def _missing(words: Iterable[str]) -> list[Leaf]:
    return [Leaf(UNKNOWN_TAG, word) for word in words]


class _Builder:
    """Collects events that are always the beginning of a well-formed tree."""

    def __init__(self, leaves: Iterable[Sequence[Leaf]]) -> None:
        self.leaves = iter(leaves)  # in place of each leaf, and those after all of them
        self.events: list[Event] = []
        self.stack: list[str] = []  # labels of the open constituents
        self.repairs: Counter[str] = Counter()

    def add(self, meaning: Event | None) -> None:
        match meaning:
            case None:
                self.repairs["meaningless"] += 1
            case Open(label):
                self.events.append(meaning)
                self.stack.append(label)
            case Leaf():
                leaves = next(self.leaves)
                self.events += leaves
                if leaves:
                    self.repairs["missing words"] += len(leaves) - 1
                else:
                    self.repairs["surplus words"] += 1
            case Close(label):
                self._add_close(label)

    def _add_close(self, label: str) -> None:
        if not self.stack:
            self.repairs["unopened"] += 1
            return
        if label in self.stack:
            while self.stack[-1] != label:
                self.repairs["unclosed"] += 1
                self._close()
        else:
            self.repairs["mismatched"] += 1
        self._close()

    def _close(self) -> None:
        """End the innermost constituent, or remove it if it is empty."""
        label = self.stack.pop()
        if isinstance(self.events[-1], Open):
            self.events.pop()
            self.repairs["empty"] += 1
        else:
            self.events.append(Close(label))

    def finish(self) -> list[Event]:
        missing = next(self.leaves)
        if missing and all(isinstance(event, Open) for event in self.events):
            self.repairs["flat"] += 1
            return [Open(FLAT_LABEL), *missing, Close(FLAT_LABEL)]
        self.repairs["missing words"] += len(missing)
        self.repairs["unclosed"] += len(self.stack)
        while len(self.stack) > 1:
            self._close()
        if self.stack:
            self.events += missing
            self._close()
        elif self.events and isinstance(self.events[-1], Close):
            last = self.events.pop()
            self.events += [*missing, last]
        else:
            self.events += missing
        return self.events
