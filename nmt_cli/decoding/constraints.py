"""Constraints on the outputs of any task: a given beginning, no repeated n-grams; and how several hold together.

Letters: N live hypotheses, L tokens so far, V vocabulary, n the length of an n-gram.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from nmt_cli.decoding.options import TranslateOptions
from nmt_cli.interfaces import FREE, UNK, Constraint, Prefix
from nmt_cli.task import Task


def constraint_of(
    task: Task,
    lines: Sequence[str],
    limits: Sequence[int],
    prefixes: Sequence[Prefix],
    options: TranslateOptions,
    unknown: bool,
    device: torch.device,
) -> Constraint | None:
    """Return the constraint of these lines' outputs, or None if they have none.

    With prefixes, it decides about the unknown word too: a prefix may contain it, and nothing else unless
    `unknown` allows it. The search must allow it then.
    """
    parts: list[Constraint] = []
    own = task.constraint(lines, limits, device) if options.constrained else None
    if own is not None:
        parts.append(own)
    if options.no_repeat_ngram is not None:
        nothing = torch.zeros((len(lines), 0), dtype=torch.long, device=device)
        parts.append(NoRepeatedNgrams(options.no_repeat_ngram, nothing))
    if any(prefix != FREE for prefix in prefixes):
        return BeginsWith(prefixes, task.continuations, AllOf(parts), unknown)
    return AllOf(parts) if parts else None


@dataclass(frozen=True)
class AllOf:
    """Several constraints, all of which hold."""

    constraints: Sequence[Constraint]

    def restrict(self, scores: Tensor) -> None:
        """Set `scores` [N, V] to -inf where one of the constraints does not allow the token."""
        for constraint in self.constraints:
            constraint.restrict(scores)

    def advance(self, rows: Tensor, tokens: Tensor) -> AllOf:
        """See `Constraint`."""
        return AllOf([constraint.advance(rows, tokens) for constraint in self.constraints])


@dataclass(frozen=True)
class NoRepeatedNgrams:
    """No n-gram of tokens occurs twice in an output (Paulus et al. 2018, section 2.5)."""

    size: int  # n
    tokens: Tensor  # [N, L]

    def restrict(self, scores: Tensor) -> None:
        """Set `scores` [N, V] to -inf for the tokens that followed the last n - 1 tokens earlier in the row."""
        n, length = self.size, self.tokens.shape[1]
        places = length - n + 1  # of earlier n-grams
        if places < 1:
            return
        same = torch.ones((len(self.tokens), places), dtype=torch.bool, device=self.tokens.device)
        for k in range(n - 1):
            same &= self.tokens[:, k : k + places] == self.tokens[:, places + k].unsqueeze(1)
        rows, found = same.nonzero(as_tuple=True)
        scores[rows, self.tokens[rows, found + n - 1]] = -torch.inf

    def advance(self, rows: Tensor, tokens: Tensor) -> NoRepeatedNgrams:
        """See `Constraint`."""
        return replace(self, tokens=torch.cat([self.tokens[rows], tokens.unsqueeze(1)], dim=1))


@dataclass(frozen=True)
class BeginsWith:
    """Each output begins with its prefix; the constraint `then` holds after it, and knows the tokens of the prefix."""

    prefixes: Sequence[Prefix]  # what is left of each row's
    continuations: Callable[[str], Mapping[int, str]]  # as `Task.continuations`
    then: Constraint
    unknown: bool = True  # the unknown word may follow, too

    def restrict(self, scores: Tensor) -> None:
        """Set `scores` [N, V] to -inf for tokens that do not continue the prefix; after it, as `then` does."""
        kept = [(place, scores[place]) for place in self._places(scores.device)]
        self.then.restrict(scores)
        if not self.unknown:
            scores[:, UNK] = -torch.inf
        inside = [row for row, prefix in enumerate(self.prefixes) if prefix != FREE]
        scores[torch.tensor(inside, dtype=torch.long, device=scores.device)] = -torch.inf
        for place, values in kept:
            scores[place] = values

    def advance(self, rows: Tensor, tokens: Tensor) -> BeginsWith:
        """See `Constraint`."""
        prefixes = [self._after(row, token) for row, token in zip(rows.tolist(), tokens.tolist(), strict=True)]
        return replace(self, prefixes=prefixes, then=self.then.advance(rows, tokens))

    def _places(self, device: torch.device) -> list[tuple[Tensor, Tensor]]:
        """The entries of the scores that continue prefixes: indices of rows and of columns, which broadcast."""
        forced = [(row, prefix.ids[0]) for row, prefix in enumerate(self.prefixes) if prefix.ids]
        open_rows = defaultdict(list)  # by the text that must follow
        for row, prefix in enumerate(self.prefixes):
            if prefix.rest and not prefix.ids:
                open_rows[prefix.rest].append([row])
        columns = [(rows, list(self.continuations(rest))) for rest, rows in open_rows.items()]
        pairs = [*columns, tuple(zip(*forced, strict=True))] if forced else columns
        return [(torch.tensor(rows, device=device), torch.tensor(ids, device=device)) for rows, ids in pairs]

    def _after(self, row: int, token: int) -> Prefix:
        """What is left of a row's prefix after `token`; nothing after a token that is not allowed."""
        ids, rest = self.prefixes[row]
        if ids:
            return Prefix(ids[1:], rest)
        return Prefix([], self.continuations(rest).get(token, "")) if rest else FREE
