"""The seam where a task says which tokens may follow: an automaton with one state for each live hypothesis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor


@runtime_checkable
class Constraint(Protocol):
    """What is allowed next, for N hypotheses at once. Never changed in place.

    The search begins with one row a sentence and then calls, at each step, `allowed` and `advance`. The end of the
    sentence is a token like any other: a constraint that never allows it makes hypotheses that end at the length limit
    only.
    """

    def allowed(self) -> Tensor:
        """[N, V], true where the token may follow.

        A row without any drops its hypothesis; when a sentence has no other left, they are kept, cut short.
        """
        ...

    def advance(self, rows: Tensor, tokens: Tensor) -> Constraint:
        """The constraint whose row i is this one's row `rows[i]` after the token `tokens[i]`.

        Args:
            rows: [N'] indices into the current N rows; repeated and missing ones allowed, as in `DecoderState.select`.
            tokens: [N']. Where fewer tokens are allowed than the beam has places, the rest of the places are filled by
                tokens that were not: their hypotheses are dead, and any row will do for them, but it must not be an
                error.
        """
        ...


@runtime_checkable
class ConstrainedTask(Protocol):
    """A task that knows which outputs are well-formed."""

    def constraint(self, sources: Sequence[str], limits: Sequence[int], device: torch.device) -> Constraint:
        """The constraint at the beginning of these sentences' outputs, one row each.

        Args:
            sources: the raw input lines.
            limits: the most tokens, EOS not counted, that each output may have.
        """
        ...
