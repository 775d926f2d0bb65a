"""Search constrained by the grammar of linearised trees: masks over the vocabulary for many hypotheses at once.

Letters: N hypotheses, V target symbols.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from nmt_cli.interfaces import EOS
from nmt_cli.parsing.grammar import GrammarState
from nmt_cli.parsing.linearisation import Meaning, Tag
from nmt_cli.parsing.trees import Close, Open

_OPENING, _LEAF, _END = 4, 2, 1  # a row's number is the sum of the kinds that it allows


@dataclass(frozen=True)
class SymbolMasks:
    """The kinds of the vocabulary's symbols, as masks."""

    meanings: Sequence[Meaning | None]
    rows: Tensor  # [8, V]: row r is true for ids of a kind in r
    closing: dict[str, int]  # the id of each label's closing bracket

    @classmethod
    def of(cls, meanings: Sequence[Meaning | None], device: torch.device) -> SymbolMasks:
        """Build the masks, given the meaning of each id."""
        kind = {Open: _OPENING, Tag: _LEAF}  # closing brackets are allowed one by one
        kinds = [_END if i == EOS else kind.get(type(meaning), 0) for i, meaning in enumerate(meanings)]
        rows = (torch.arange(8, device=device).unsqueeze(1) & torch.tensor(kinds, device=device)) > 0
        closing = {meaning.label: i for i, meaning in enumerate(meanings) if isinstance(meaning, Close)}
        return cls(meanings, rows, closing)


@dataclass(frozen=True)
class TreeConstraint:
    """The `Constraint` of a search. A state of None allows nothing: its hypothesis is dropped."""

    masks: SymbolMasks
    states: Sequence[GrammarState | None]

    def restrict(self, scores: Tensor) -> None:
        """Set `scores` [N, V] to -inf where the symbol may not follow."""
        kinds, closers = [], []
        for row, state in enumerate(self.states):
            if state is None:
                kinds.append(0)
                continue
            allowed = state.allowed()
            kinds.append(_OPENING * allowed.opening + _LEAF * allowed.leaf + _END * allowed.end)
            if allowed.closing in self.masks.closing:
                closers.append((row, self.masks.closing[allowed.closing]))
        mask = self.masks.rows[torch.tensor(kinds, device=self.masks.rows.device)]
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
