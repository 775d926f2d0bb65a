"""Search constrained by the grammar of linearised trees: which ids may follow, for many hypotheses at once.

Letters: N hypotheses, V symbols of the target vocabulary.
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

_OPENING, _LEAF, _END = 4, 2, 1
"""What each of the eight rows allows, as the sum of these."""


@dataclass(frozen=True)
class SymbolMasks:
    """The vocabulary as the grammar sees it."""

    meanings: Sequence[Meaning | None]
    rows: Tensor  # [8, V], true where the id is of a kind that the row allows; the row 0 allows nothing
    closing: dict[str, int]  # the id of each label's closing bracket

    @classmethod
    def of(cls, meanings: Sequence[Meaning | None], device: torch.device) -> SymbolMasks:
        """The masks of a vocabulary, given what each of its ids says."""
        kinds = torch.tensor([_kind(number, meaning) for number, meaning in enumerate(meanings)], device=device)
        rows = (torch.arange(8, device=device).unsqueeze(1) & kinds) > 0
        closing = {meaning.label: number for number, meaning in enumerate(meanings) if isinstance(meaning, Close)}
        return cls(meanings, rows, closing)


@dataclass(frozen=True)
class TreeConstraint:
    """What may follow in N sequences; a dead one, None, may not go on.

    It is what the search asks of a constraint, and is never changed.
    """

    masks: SymbolMasks
    states: Sequence[GrammarState | None]

    def allowed(self) -> Tensor:
        """[N, V], true where the symbol may follow."""
        kinds, closers = [], []
        for number, state in enumerate(self.states):
            if state is None:
                kinds.append(0)
                continue
            allowed = state.allowed()
            kinds.append(_OPENING * allowed.opening + _LEAF * allowed.leaf + _END * allowed.end)
            closer = None if allowed.closing is None else self.masks.closing.get(allowed.closing)
            if closer is not None:
                closers.append((number, closer))
        mask = self.masks.rows[torch.tensor(kinds, device=self.masks.rows.device)]
        if closers:
            places = torch.tensor(closers, device=mask.device)
            mask[places[:, 0], places[:, 1]] = True
        return mask

    def advance(self, rows: Tensor, tokens: Tensor) -> TreeConstraint:
        """The constraint whose row i is this one's row `rows[i]` after `tokens[i]`; dead where that is not allowed."""
        return TreeConstraint(
            self.masks, [self._after(row, token) for row, token in zip(rows.tolist(), tokens.tolist(), strict=True)]
        )

    def _after(self, row: int, token: int) -> GrammarState | None:
        state, meaning = self.states[row], self.masks.meanings[token]
        if state is None or meaning is None or not state.allows(meaning):
            return None
        return state.advance(meaning)


def _kind(number: int, meaning: Meaning | None) -> int:
    """The kind of an id; closing brackets are allowed one by one, and so are of no kind."""
    if number == EOS:
        return _END
    if isinstance(meaning, Open):
        return _OPENING
    return _LEAF if isinstance(meaning, Tag) else 0
