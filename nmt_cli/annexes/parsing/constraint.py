"""Search constrained to trees: an automaton, and its masks over the vocabulary.

The complete paths of the automaton are trees over the given words. Brackets match, there are as
many leaves as words, no constituent is empty, and the tree can be finished within the symbols left.
Depth and the number of constituents opened in a row are limited, which ends chains of constituents
with one child. There are no dead ends.

Letters: N hypotheses, V target symbols.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from nmt_cli.annexes.parsing.symbols import TreeLimits
from nmt_cli.annexes.parsing.task import GrammarConfig, ParsingTask
from nmt_cli.annexes.parsing.trees import Close, Event, Leaf, Open, line_words
from nmt_cli.decoding.constraints import Rule
from nmt_cli.decoding.engine import Request
from nmt_cli.decoding.options import SearchSettings
from nmt_cli.errors import UsageError
from nmt_cli.interfaces import EOS
from nmt_cli.task import Task

# Kinds of symbols. A sum of kinds is a row of `SymbolMasks`.
OPENING, LEAF, END = 4, 2, 1


class Grammar(Rule):
    """Outputs are trees over the words of their lines, or nothing for lines of too many words."""

    def __init__(self, config: GrammarConfig, *, task: Task, **_: Any) -> None:
        if not isinstance(task, ParsingTask):
            raise UsageError(
                f"--constrained cannot be used with the task {task.name!r}: it has no constraint"
            )
        self.task = task

    def constraint(
        self, requests: Sequence[Request], search: SearchSettings, device: torch.device
    ) -> TreeConstraint:
        """See `Rule`."""
        states: list[GrammarState | None] = []
        for request in requests:
            words = len(line_words(request.line))
            if words <= request.limit:
                states.append(GrammarState(words, request.limit, self.task.trees.limits))
            else:
                states.append(None)
        return TreeConstraint(SymbolMasks.of(self.task.meanings(), device), states)


@dataclass(frozen=True, slots=True)
class GrammarState:
    """A position in a sequence."""

    words_left: int
    symbols_left: int  # without EOS, at least `words_left`
    limits: TreeLimits
    labels: tuple[str, ...] = ()  # of the open constituents
    opens_in_row: int = 0

    def allowed(self) -> tuple[int, str | None]:
        """Return the sum of the kinds that may follow, and the label that may be closed."""
        depth = len(self.labels)
        kinds = 0
        if self.words_left > 0:
            kinds += LEAF
            shortest = self.words_left + depth  # symbols needed to finish the tree now
            if (
                depth < self.limits.depth
                and self.opens_in_row < self.limits.opens_in_row
                and shortest + 2 <= self.symbols_left
            ):
                kinds += OPENING
        elif depth == 0:
            kinds += END
        closing = None
        if depth > 0 and self.opens_in_row == 0:  # otherwise it would be empty
            closing = self.labels[-1]
        return kinds, closing

    def advance(self, meaning: Event | None) -> GrammarState | None:
        """Return the state after a symbol, or None if the symbol is not allowed."""
        kinds, closing = self.allowed()
        left = self.symbols_left - 1
        match meaning:
            case Open(label) if kinds & OPENING:
                labels = (*self.labels, label)
                opens_in_row = self.opens_in_row + 1
                return GrammarState(self.words_left, left, self.limits, labels, opens_in_row)
            case Leaf() if kinds & LEAF:
                return GrammarState(self.words_left - 1, left, self.limits, self.labels)
            case Close(label) if label == closing:
                return GrammarState(self.words_left, left, self.limits, self.labels[:-1])
        return None


@dataclass(frozen=True)
class SymbolMasks:
    """The kinds of the vocabulary's symbols, as masks."""

    meanings: Sequence[Event | None]
    rows: Tensor  # [8, V]: row r is true for ids of a kind in the sum r
    closing: dict[str, int]  # the id of each label's closing bracket

    @classmethod
    def of(cls, meanings: Sequence[Event | None], device: torch.device) -> SymbolMasks:
        kinds = [0] * len(meanings)
        kinds[EOS] = END
        closing = {}
        for i, meaning in enumerate(meanings):
            match meaning:
                case Open():
                    kinds[i] = OPENING
                case Leaf():
                    kinds[i] = LEAF
                case Close(label):  # closing brackets are allowed one by one
                    closing[label] = i
        sums = torch.arange(8, device=device)[:, None]
        rows = (sums & torch.tensor(kinds, device=device)) > 0  # [8, V]
        return cls(meanings, rows, closing)


@dataclass(frozen=True)
class TreeConstraint:
    """The `Constraint` of a search. A state of None allows nothing: its hypothesis is dropped."""

    masks: SymbolMasks
    states: Sequence[GrammarState | None]

    def restrict(self, scores: Tensor) -> None:
        """Set `scores` [N, V] to -inf where the symbol may not follow."""
        sums = []  # of each row, the kinds that may follow
        closing = []  # (row, id) of closing brackets that may follow
        for row, state in enumerate(self.states):
            kinds, label = (0, None) if state is None else state.allowed()
            sums.append(kinds)
            if label in self.masks.closing:
                closing.append((row, self.masks.closing[label]))
        device = self.masks.rows.device
        mask = self.masks.rows[torch.tensor(sums, device=device)]  # [N, V]
        if closing:
            places = torch.tensor(closing, device=device)
            mask[places[:, 0], places[:, 1]] = True
        scores.masked_fill_(~mask, -torch.inf)

    def advance(self, rows: Tensor, tokens: Tensor) -> TreeConstraint:
        """Return the constraint whose row i is row `rows[i]` of this one after `tokens[i]`."""
        states = []
        for row, token in zip(rows.tolist(), tokens.tolist(), strict=True):
            state = self.states[row]
            if state is not None:
                state = state.advance(self.masks.meanings[token])
            states.append(state)
        return TreeConstraint(self.masks, states)
