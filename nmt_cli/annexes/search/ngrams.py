"""No n-gram of tokens occurs twice in an output (Paulus et al. 2018, section 2.5).

Letters: N live hypotheses, L tokens so far, V vocabulary, n the length of an n-gram.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from nmt_cli.annexes.search.settings import NgramsConfig
from nmt_cli.decoding.constraints import Rule
from nmt_cli.decoding.engine import Request
from nmt_cli.decoding.options import SearchSettings


class NoRepeat(Rule):
    """The rule of `--no-repeat-ngram`."""

    def __init__(self, config: NgramsConfig, **_: Any) -> None:
        self.size = config.no_repeat_ngram or 0

    def constraint(
        self, requests: Sequence[Request], search: SearchSettings, device: torch.device
    ) -> NoRepeatedNgrams:
        """See `Rule`."""
        tokens = torch.zeros((len(requests), 0), dtype=torch.long, device=device)
        return NoRepeatedNgrams(self.size, tokens)


@dataclass(frozen=True)
class NoRepeatedNgrams:
    """The `Constraint` of a search."""

    size: int  # n
    tokens: Tensor  # [N, L]

    def restrict(self, scores: Tensor) -> None:
        """Set `scores` [N, V] to -inf for tokens that followed the last n - 1 tokens before."""
        n = self.size
        N, L = self.tokens.shape
        places = L - n + 1  # of earlier n-grams
        if places < 1:
            return
        same = torch.ones((N, places), dtype=torch.bool, device=self.tokens.device)
        for k in range(n - 1):
            last = self.tokens[:, places + k]  # [N], of the last n - 1 tokens
            same &= self.tokens[:, k : k + places] == last.unsqueeze(1)
        rows, starts = same.nonzero(as_tuple=True)
        following = self.tokens[rows, starts + n - 1]
        scores[rows, following] = -torch.inf

    def advance(self, rows: Tensor, tokens: Tensor) -> NoRepeatedNgrams:
        """See `Constraint`."""
        longer = torch.cat([self.tokens[rows], tokens.unsqueeze(1)], dim=1)
        return replace(self, tokens=longer)
