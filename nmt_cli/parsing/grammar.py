"""Which symbol may follow in a linearised tree: an automaton whose every complete path is a tree over the given words.

It promises that brackets match, that there are as many leaves as words, that no constituent is empty, that nothing is
deeper than a limit, that no more than so many constituents open in a row (so chains of constituents with a single child
end), and that the tree can still be finished within the symbols that are left. There are no dead ends: until the end,
some symbol is always allowed.

What is allowed depends on four things only (`Allowed`), so a mask over the vocabulary is one of eight rows, made
beforehand, and the one closing bracket.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from nmt_cli.parsing.linearisation import Meaning, Tag
from nmt_cli.parsing.trees import Close, Open, Tree


@dataclass(frozen=True)
class Limits:
    """Bounds on the trees: constituents around a word (the root left out), and constituents that open in a row."""

    depth: int
    opens_in_row: int

    @classmethod
    def of(cls, trees: Iterable[Tree]) -> Limits:
        """The narrowest limits that let all these trees pass."""
        deepest, longest = 1, 1
        for tree in trees:
            depth = in_row = 0
            for event in tree.events[1:-1]:
                if isinstance(event, Open):
                    depth, in_row = depth + 1, in_row + 1
                    deepest, longest = max(deepest, depth), max(longest, in_row)
                else:
                    depth, in_row = depth - isinstance(event, Close), 0
        return cls(deepest, longest)


class Allowed(NamedTuple):
    """What may follow: any opening bracket, the closing bracket of one label, any leaf, the end of the sequence."""

    opening: bool
    leaf: bool
    end: bool
    closing: str | None


class _Constituent(NamedTuple):
    label: str
    around: _Constituent | None


@dataclass(frozen=True, slots=True)
class GrammarState:
    """A point in a sequence. Never changed; the open constituents are shared between states."""

    limits: Limits
    words_left: int
    symbols_left: int  # how many more symbols there may be, the end of the sequence not counted
    innermost: _Constituent | None = None
    depth: int = 0
    opens_in_row: int = 0

    @classmethod
    def start(cls, words: int, most_symbols: int, limits: Limits) -> GrammarState:
        """The state before the first symbol.

        Raises:
            ValueError: not even the bare leaves fit into `most_symbols`.
        """
        if most_symbols < words:
            raise ValueError(f"{words} words need at least {words} symbols, not {most_symbols}")
        return cls(limits, words, most_symbols)

    def allowed(self) -> Allowed:
        """What may follow here."""
        shortest = self.words_left + self.depth  # symbols that a tree finished at once would need
        opening = (
            self.words_left > 0
            and self.depth < self.limits.depth
            and self.opens_in_row < self.limits.opens_in_row
            and shortest + 2 <= self.symbols_left
        )
        not_empty = self.opens_in_row == 0
        return Allowed(
            opening=opening,
            leaf=self.words_left > 0,
            end=self.words_left == 0 and self.depth == 0,
            closing=self.innermost.label if self.innermost is not None and not_empty else None,
        )

    def allows(self, meaning: Meaning | None) -> bool:
        """Whether this symbol may follow here."""
        allowed = self.allowed()
        if meaning is None:
            return False
        if isinstance(meaning, Open):
            return allowed.opening
        if isinstance(meaning, Tag):
            return allowed.leaf
        return allowed.closing == meaning.label

    def advance(self, meaning: Meaning) -> GrammarState:
        """The state after a symbol that is allowed here.

        Raises:
            ValueError: it is not allowed.
        """
        if not self.allows(meaning):
            raise ValueError(f"{meaning} may not follow here")
        left = self.symbols_left - 1
        if isinstance(meaning, Open):
            inner = _Constituent(meaning.label, self.innermost)
            return GrammarState(self.limits, self.words_left, left, inner, self.depth + 1, self.opens_in_row + 1)
        if isinstance(meaning, Tag):
            return GrammarState(self.limits, self.words_left - 1, left, self.innermost, self.depth, 0)
        assert self.innermost is not None
        return GrammarState(self.limits, self.words_left, left, self.innermost.around, self.depth - 1, 0)
