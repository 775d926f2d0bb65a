"""The target side of parsing: the symbols of a treebank and the limits of its trees."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from nmt_cli.parsing.grammar import TreeLimits
from nmt_cli.parsing.linearisation import Authors, Linearisation, Vinyals
from nmt_cli.parsing.trees import Event, Leaf, Open, Tree

LINEARISATIONS = ("vinyals", "authors")
_SPARE_DEPTH, _SPARE_OPENS = 10, 2  # new sentences may have deeper trees than the treebank


@dataclass(frozen=True)
class TreeSymbols:
    """The symbols of a treebank in one form of linearisation."""

    form: str  # one of `LINEARISATIONS`
    labels: frozenset[str]  # of the treebank's constituents
    symbols: tuple[str, ...]  # all of the treebank, the most frequent first
    limits: TreeLimits  # of trees in a constrained search

    def __post_init__(self) -> None:
        if self.form not in LINEARISATIONS:
            raise ValueError(f"unknown linearisation {self.form!r}; known: {', '.join(LINEARISATIONS)}")

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
        return cls(form, labels, tuple(sorted(counts, key=lambda symbol: (-counts[symbol], symbol))), limits)

    @cached_property
    def linearisation(self) -> Linearisation:
        return Vinyals() if self.form == "vinyals" else Authors(self.labels)

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"labels": sorted(self.labels), "symbols": list(self.symbols)}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> TreeSymbols:
        """Restore what `to_json` returned; raise KeyError, TypeError or ValueError if it is damaged."""
        limits = TreeLimits(**content["limits"])
        if any(type(value) is not int or not 0 < value < 1 << 20 for value in vars(limits).values()):
            raise ValueError(f"limits of trees: {limits}")
        if not all(isinstance(name, str) for name in [*content["labels"], *content["symbols"]]):
            raise ValueError("labels and symbols must be strings")
        return cls(content["form"], frozenset(content["labels"]), tuple(content["symbols"]), limits)
