"""The symbols that may follow in a linearised tree: an automaton whose complete paths are trees over the given words.

It ensures that brackets match, that there are as many leaves as words, that no constituent is empty, that depth and the
number of constituents opened in a row are limited (which ends chains of constituents with one child), and that the tree
can be finished within the symbols left. There are no dead ends: until the end, some symbol is allowed.

`Allowed` has few values, so the mask over the vocabulary is one of eight precomputed rows and one closing bracket.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from nmt_cli.parsing.linearisation import Meaning, Tag
from nmt_cli.parsing.trees import Close, Open, Tree


@dataclass(frozen=True)
class TreeLimits:
    """The maximum number of constituents around a word (without the root), and of constituents opened in a row."""

    depth: int
    opens_in_row: int

    def including(self, tree: Tree) -> TreeLimits:
        """Return the limits extended to allow `tree`."""
        deepest, longest = self.depth, self.opens_in_row
        depth = in_row = 0
        for event in tree.events[1:-1]:
            if isinstance(event, Open):
                depth, in_row = depth + 1, in_row + 1
                deepest, longest = max(deepest, depth), max(longest, in_row)
            else:
                depth, in_row = depth - isinstance(event, Close), 0
        return TreeLimits(deepest, longest)


class Allowed(NamedTuple):
    """The symbols that may follow: opening brackets, leaves, the end, the closing bracket of one label."""

    opening: bool
    leaf: bool
    end: bool
    closing: str | None


class _Constituent(NamedTuple):
    label: str
    parent: _Constituent | None


@dataclass(frozen=True, slots=True)
class GrammarState:
    """A position in a sequence. Immutable; states share their open constituents.

    `symbols_left` must not be less than `words_left`. EOS is not counted.
    """

    words_left: int
    symbols_left: int
    limits: TreeLimits
    innermost: _Constituent | None = None
    depth: int = 0
    opens_in_row: int = 0

    def allowed(self) -> Allowed:
        """Return the symbols that may follow."""
        shortest = self.words_left + self.depth  # symbols needed to finish the tree now
        return Allowed(
            opening=self.words_left > 0
            and self.depth < self.limits.depth
            and self.opens_in_row < self.limits.opens_in_row
            and shortest + 2 <= self.symbols_left,
            leaf=self.words_left > 0,
            end=self.words_left == 0 and self.depth == 0,
            closing=self.innermost.label if self.innermost is not None and self.opens_in_row == 0 else None,
        )

    def advance(self, meaning: Meaning | None) -> GrammarState | None:
        """Return the state after a symbol, or None if the symbol is not allowed."""
        allowed = self.allowed()
        left = self.symbols_left - 1
        match meaning:
            case Open(label) if allowed.opening:
                inner = _Constituent(label, self.innermost)
                return GrammarState(self.words_left, left, self.limits, inner, self.depth + 1, self.opens_in_row + 1)
            case Tag() if allowed.leaf:
                return GrammarState(self.words_left - 1, left, self.limits, self.innermost, self.depth, 0)
            case Close(label) if self.innermost is not None and allowed.closing == label:
                return GrammarState(self.words_left, left, self.limits, self.innermost.parent, self.depth - 1, 0)
        return None
