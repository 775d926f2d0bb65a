"""The target side of parsing: a treebank's symbols, each a whole token with an id, and the shape of its trees."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from nmt_cli.data.subwords import WholeTokens
from nmt_cli.interfaces import SPECIAL_SYMBOLS
from nmt_cli.parsing.grammar import Limits
from nmt_cli.parsing.linearisation import Authors, Linearisation, Meaning, Repairs, Vinyals, repair
from nmt_cli.parsing.trees import ROOT_LABEL, Close, Event, Leaf, Open, Tree, parse_trees

LINEARISATIONS = ("vinyals", "authors")
_SPARE_DEPTH, _SPARE_OPENS = 10, 2
"""New sentences may have deeper trees than the treebank's."""


@dataclass(frozen=True)
class TreeSymbols:
    """One way to write trees as symbols, the symbols of a treebank, and limits for trees like its own.

    Args:
        way: its name, one of `LINEARISATIONS`.
        labels: of the treebank's constituents.
        symbols: all that occur in the treebank, the most frequent first.
        limits: of the trees that a constrained search may give.
    """

    way: str
    labels: frozenset[str]
    symbols: tuple[str, ...]
    limits: Limits

    @classmethod
    def of(cls, trees: Iterable[Tree], way: str) -> TreeSymbols:
        """What `trees`, cleaned ones, need; they are read once."""
        counts: Counter[Event] = Counter()
        depth, opens = 1, 1
        for tree in trees:
            counts.update(Leaf(e.tag, "") if isinstance(e, Leaf) else e for e in tree.events[1:-1])
            limits = Limits.of([tree])
            depth, opens = max(depth, limits.depth), max(opens, limits.opens_in_row)
        labels = frozenset(event.label for event in counts if isinstance(event, Open))
        symbols = _ranked(counts, _linearisation(way, labels))
        return cls(way, labels, symbols, Limits(depth + _SPARE_DEPTH, opens + _SPARE_OPENS))

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> TreeSymbols:
        """What `to_json` wrote; KeyError, TypeError or ValueError where it is damaged."""
        way = str(content["way"])
        _linearisation(way, frozenset())
        limits = Limits(**content["limits"])
        if any(type(value) is not int or not 0 < value < 1 << 20 for value in vars(limits).values()):
            raise ValueError(f"limits of trees: {limits}")
        if not all(isinstance(name, str) for name in [*content["labels"], *content["symbols"]]):
            raise ValueError("labels and symbols must be strings")
        return cls(way, frozenset(content["labels"]), tuple(content["symbols"]), limits)

    def to_json(self) -> dict[str, Any]:
        """All of it, as plain values."""
        return {
            "way": self.way,
            "labels": sorted(self.labels),
            "symbols": list(self.symbols),
            "limits": asdict(self.limits),
        }

    @property
    def linearisation(self) -> Linearisation:
        return _linearisation(self.way, self.labels)

    def vocabulary(self) -> WholeTokens:
        """The symbols with ids, the special ones first."""
        return WholeTokens([*SPECIAL_SYMBOLS, *self.symbols])

    def write(self, tree: Tree) -> list[str]:
        """The symbols of a cleaned tree."""
        return self.linearisation.symbols(tree)

    def read(self, symbols: Sequence[str], words: Sequence[str]) -> tuple[Tree, Repairs]:
        """The tree over `words` that the symbols describe, and what had to be repaired."""
        return repair(symbols, words, self.linearisation)

    def meanings(self, symbols: Iterable[str]) -> list[Meaning | None]:
        """What each symbol says; None for those that are not the treebank's, such as the special ones."""
        known = frozenset(self.symbols)
        return [self.linearisation.meaning(symbol) if symbol in known else None for symbol in symbols]


def line_tree(line: str) -> Tree:
    """The one tree of a line that `tree_line` wrote."""
    (placed,) = parse_trees([line], "tree")
    return placed.tree


def _ranked(counts: Mapping[Event, int], way: Linearisation) -> tuple[str, ...]:
    """The symbols of the events, the most frequent first, ties by code points."""
    events = list(counts)
    written = way.symbols(Tree((Open(ROOT_LABEL), *events, Close(ROOT_LABEL))))
    total: Counter[str] = Counter()
    for symbol, event in zip(written, events, strict=True):
        total[symbol] += counts[event]
    return tuple(sorted(total, key=lambda symbol: (-total[symbol], symbol)))


def _linearisation(way: str, labels: frozenset[str]) -> Linearisation:
    if way not in LINEARISATIONS:
        raise ValueError(f"{way!r} is no way to write trees; known: {', '.join(LINEARISATIONS)}")
    return Vinyals() if way == "vinyals" else Authors(labels)
