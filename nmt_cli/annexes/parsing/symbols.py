"""The target side of parsing: the symbols of a treebank and the limits of its trees."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from nmt_cli.annexes.parsing.linearisation import Authors, Linearisation, Vinyals
from nmt_cli.annexes.parsing.trees import Close, Event, Leaf, Open, Tree

LINEARISATIONS = ("vinyals", "authors")
_SPARE_DEPTH, _SPARE_OPENS = 10, 2  # new sentences may have deeper trees than the treebank


@dataclass(frozen=True)
class TreeLimits:
    """The maximum number of constituents around a word (without the root), and of constituents
    opened in a row.
    """

    depth: int
    opens_in_row: int

    def including(self, tree: Tree) -> TreeLimits:
        """Return the limits extended to allow `tree`."""
        deepest, longest = self.depth, self.opens_in_row
        depth = in_row = 0
        for event in tree.events[1:-1]:
            depth += isinstance(event, Open) - isinstance(event, Close)
            in_row = in_row + 1 if isinstance(event, Open) else 0
            deepest, longest = max(deepest, depth), max(longest, in_row)
        return TreeLimits(deepest, longest)


@dataclass(frozen=True)
class TreeSymbols:
    """The symbols of a treebank in one form of linearisation."""

    form: str  # one of `LINEARISATIONS`
    labels: frozenset[str]  # of the treebank's constituents
    symbols: tuple[str, ...]  # all of the treebank, the most frequent first
    limits: TreeLimits  # of trees in a constrained search

    @classmethod
    def of(cls, trees: Iterable[Tree], form: str) -> TreeSymbols:
        """Collect the symbols of cleaned trees; `trees` is iterated once."""
        events: Counter[Event] = Counter()
        limits = TreeLimits(1, 1)
        for tree in trees:
            events.update(Leaf(e.tag, "") if isinstance(e, Leaf) else e for e in tree.events[1:-1])
            limits = limits.including(tree)
        labels = frozenset(event.label for event in events if isinstance(event, Open))
        limits = TreeLimits(limits.depth + _SPARE_DEPTH, limits.opens_in_row + _SPARE_OPENS)
        empty = cls(form, labels, (), limits)
        counts: Counter[str] = Counter()
        for event, count in events.items():
            counts[empty.linearisation.symbol(event)] += count
        return cls(
            form,
            labels,
            tuple(sorted(counts, key=lambda symbol: (-counts[symbol], symbol))),
            limits,
        )

    @cached_property
    def linearisation(self) -> Linearisation:
        return Vinyals() if self.form == "vinyals" else Authors(self.labels)

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"labels": sorted(self.labels), "symbols": list(self.symbols)}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> TreeSymbols:
        """Restore what `to_json` returned; raise KeyError or TypeError if it is damaged."""
        limits = TreeLimits(**content["limits"])
        return cls(content["form"], frozenset(content["labels"]), tuple(content["symbols"]), limits)
