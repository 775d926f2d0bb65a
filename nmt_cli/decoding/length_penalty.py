"""Scores that compare outputs of different lengths (section 6.1), of tensors or numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor


def length_penalty(length: Any, alpha: float) -> Any:
    """((5 + |Y|) / 6)^alpha, the divisor of a log-probability (Wu et al. 2016, eq. 14)."""
    return ((5.0 + length) / 6.0) ** alpha


@dataclass(frozen=True)
class LengthPenalty:
    """Scores that compare outputs of different lengths. A subclass may have others."""

    alpha: float

    def score(self, log_probability: Tensor, length: Tensor) -> Tensor:
        """Return the scores of outputs. `length` includes EOS and broadcasts."""
        return log_probability.div(length_penalty(length, self.alpha))

    def bound(self, log_probability: Tensor, longest: Tensor) -> Tensor:
        """Return a score that no continuation exceeds up to the length `longest`.

        The log-probability of a hypothesis only falls, and the paper's penalty is greatest
        at the limit.
        """
        return self.score(log_probability, longest)
