"""The target side of parsing: the symbols of a treebank and the limits of its trees."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from nmt_cli.annexes.parsing.linearisation import UNKNOWN_TAG, Authors, Linearisation, Vinyals
from nmt_cli.annexes.parsing.trees import Close, Event, Leaf, Open, Tree

LINEARISATIONS = ("vinyals", "authors")
# New sentences may have deeper trees than the treebank.
_SPARE_DEPTH = 10
_SPARE_OPENS = 2


@dataclass(frozen=True)
class TreeLimits:
    """The largest numbers of constituents in a tree."""

    depth: int  # constituents around a word, without the root
    opens_in_row: int  # constituents opened in a row

    def including(self, tree: Tree) -> TreeLimits:
        """Return the limits extended to allow `tree`."""
        deepest = self.depth
        longest = self.opens_in_row
        depth = 0
        opens_in_row = 0
        for event in tree.events[1:-1]:
            if isinstance(event, Open):
                depth += 1
                opens_in_row += 1
                deepest = max(deepest, depth)
                longest = max(longest, opens_in_row)
            else:
                opens_in_row = 0
                if isinstance(event, Close):
                    depth -= 1
        return TreeLimits(deepest, longest)


@dataclass(frozen=True)
class TreeSymbols:
    """The symbols of a treebank in one form of linearisation."""

    form: str  # one of `LINEARISATIONS`
    labels: frozenset[str]  # of the treebank's constituents
    symbols: tuple[str, ...]  # all of the treebank, the most frequent first
    limits: TreeLimits  # of trees in a constrained search
    tags: Mapping[str, str]  # the most frequent one of each word. Empty if the form has no tags

    @classmethod
    def of(cls, trees: Iterable[Tree], form: str) -> TreeSymbols:
        """Collect the symbols of cleaned trees. `trees` is iterated once."""
        events: Counter[Event] = Counter()
        limits = TreeLimits(1, 1)
        for tree in trees:
            events.update(tree.events[1:-1])
            limits = limits.including(tree)
        labels = frozenset(event.label for event in events if isinstance(event, Open))
        limits = TreeLimits(limits.depth + _SPARE_DEPTH, limits.opens_in_row + _SPARE_OPENS)
        linearisation = _linearisation(form, labels)
        counts: Counter[str] = Counter()
        for event, count in events.items():
            counts[linearisation.symbol(event)] += count
        symbols = sorted(counts, key=lambda symbol: (-counts[symbol], symbol))
        tags: dict[str, str] = {}
        if form == "authors":
            for event, _ in events.most_common():
                if isinstance(event, Leaf):
                    tags.setdefault(event.word, event.tag)
        return cls(form, labels, tuple(symbols), limits, tags)

    @cached_property
    def linearisation(self) -> Linearisation:
        return _linearisation(self.form, self.labels)

    def likely_tags(self, words: Sequence[str]) -> list[str]:
        """Return a tag for each word, or nothing if no tags are known."""
        if not self.tags:
            return []
        return [self.tags.get(word, UNKNOWN_TAG) for word in words]

    def to_json(self) -> dict[str, Any]:
        words_by_tag: dict[str, list[str]] = {}
        for word, tag in self.tags.items():
            words_by_tag.setdefault(tag, []).append(word)
        return {
            "form": self.form,
            "labels": sorted(self.labels),
            "symbols": list(self.symbols),
            "limits": asdict(self.limits),
            # Words have no spaces. A line for each of them would be long to read.
            "words_by_tag": {tag: " ".join(words_by_tag[tag]) for tag in sorted(words_by_tag)},
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> TreeSymbols:
        """Restore the content that `to_json` returned.

        Raises:
            KeyError, TypeError, AttributeError: it is damaged.
        """
        tags: dict[str, str] = {}
        for tag, words in content.get("words_by_tag", {}).items():  # older ones have none
            tags.update(dict.fromkeys(words.split(" "), tag))
        return cls(
            content["form"],
            frozenset(content["labels"]),
            tuple(content["symbols"]),
            TreeLimits(**content["limits"]),
            tags,
        )


def _linearisation(form: str, labels: frozenset[str]) -> Linearisation:
    if form == "vinyals":
        return Vinyals()
    return Authors(labels)
