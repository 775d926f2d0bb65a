"""Search constrained to trees: an automaton, and its masks over the vocabulary for many hypotheses
at once.

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

OPENING, LEAF, END = 4, 2, 1


class Grammar(Rule):
    """Outputs are trees over the words of their lines, or nothing if these are more than a line's
    limit.
    """

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
        states = []
        for request in requests:
            count = len(line_words(request.line))
            fits = count <= request.limit
            states.append(
                GrammarState(count, request.limit, self.task.trees.limits) if fits else None
            )
        return TreeConstraint(SymbolMasks.of(self.task.meanings(), device), states)


@dataclass(frozen=True, slots=True)
class GrammarState:
    """A position in a sequence. `symbols_left` is at least `words_left`; EOS is not counted."""

    words_left: int
    symbols_left: int
    limits: TreeLimits
    labels: tuple[str, ...] = ()  # of the open constituents
    opens_in_row: int = 0

    def allowed(self) -> tuple[int, str | None]:
        """Return the sum of the kinds that may follow, and the label that may be closed."""
        depth = len(self.labels)
        if self.words_left:
            shortest = self.words_left + depth  # symbols needed to finish the tree now
            opening = (
                depth < self.limits.depth
                and self.opens_in_row < self.limits.opens_in_row
                and shortest + 2 <= self.symbols_left
            )
            kinds = LEAF + OPENING * opening
        else:
            kinds = 0 if depth else END
        return kinds, self.labels[-1] if depth and not self.opens_in_row else None

    def advance(self, meaning: Event | None) -> GrammarState | None:
        """Return the state after a symbol, or None if the symbol is not allowed."""
        kinds, closing = self.allowed()
        left = self.symbols_left - 1
        match meaning:
            case Open(label) if kinds & OPENING:
                return GrammarState(
                    self.words_left, left, self.limits, (*self.labels, label), self.opens_in_row + 1
                )
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
        kind = {Open: OPENING, Leaf: LEAF}  # closing brackets are allowed one by one
        kinds = [
            END if i == EOS else kind.get(type(meaning), 0) for i, meaning in enumerate(meanings)
        ]
        rows = (
            torch.arange(8, device=device).unsqueeze(1) & torch.tensor(kinds, device=device)
        ) > 0
        closing = {
            meaning.label: i for i, meaning in enumerate(meanings) if isinstance(meaning, Close)
        }
        return cls(meanings, rows, closing)


@dataclass(frozen=True)
class TreeConstraint:
    """The `Constraint` of a search. A state of None allows nothing: its hypothesis is dropped."""

    masks: SymbolMasks
    states: Sequence[GrammarState | None]

    def restrict(self, scores: Tensor) -> None:
        """Set `scores` [N, V] to -inf where the symbol may not follow."""
        allowed = [(0, None) if state is None else state.allowed() for state in self.states]
        mask = self.masks.rows[
            torch.tensor([kinds for kinds, _ in allowed], device=self.masks.rows.device)
        ]
        ids = self.masks.closing
        closers = [(row, ids[label]) for row, (_, label) in enumerate(allowed) if label in ids]
        if closers:
            places = torch.tensor(closers, device=mask.device)
            mask[places[:, 0], places[:, 1]] = True
        scores.masked_fill_(~mask, -torch.inf)

    def advance(self, rows: Tensor, tokens: Tensor) -> TreeConstraint:
        """Return the constraint whose row i is this one's row `rows[i]` after `tokens[i]`."""
        states = []
        for row, token in zip(rows.tolist(), tokens.tolist(), strict=True):
            state = self.states[row]
            states.append(None if state is None else state.advance(self.masks.meanings[token]))
        return TreeConstraint(self.masks, states)
