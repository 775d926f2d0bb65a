"""Beam search with the length penalty, output limits and early termination of section 6.1, for any `Decodable`.

Letters: B sentences, A of them still active, W live hypotheses of each (1 at first, then the beam), N = A * W rows of
    the decoder state, L tokens so far, V vocabulary, C candidates of a sentence, K the beam.

|Y| counts the end-of-sentence token, as in the paper's own code: an output that is empty has a length of 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from nmt_cli.decoding.options import SearchSettings
from nmt_cli.decoding.topk import topk
from nmt_cli.errors import CheckpointError
from nmt_cli.interfaces import BOS, EOS, PAD, UNK, Constraint, Decodable, DecoderState, Hypothesis

CUT = torch.finfo(torch.float32).min
"""The rank of an output that was cut off. The rank of a finished one is its score, and that of none -inf."""


def length_penalty(length: Tensor, alpha: float) -> Tensor:
    """((5 + |Y|) / 6)^alpha, the divisor of a log-probability (Wu et al. 2016, equation 14; section 6.1)."""
    return ((5.0 + length) / 6.0) ** alpha


@torch.inference_mode()
def beam_search(
    model: Decodable,
    source: Tensor,
    limits: Sequence[int],
    options: SearchSettings | None = None,
    constraint: Constraint | None = None,
) -> list[list[Hypothesis]]:
    """Return the best outputs of each sentence, best first.

    A hypothesis is finished if EOS is among the K best candidates of its sentence. A sentence is done when no live
    hypothesis can beat the worst of its `nbest` finished ones: scores only fall, and the penalty is greatest at the
    limit. Greedy search, a beam of 1, ends at the first EOS. Hypotheses that reach the limit, or for which a constraint
    allows no token, are cut off: they follow the finished ones, and their `token_scores` have no entry for EOS.

    Args:
        source: [B, S], padded, each row ends in EOS.
        limits: the maximum number of tokens, without EOS, of each sentence's output.
        constraint: the tokens that are allowed next, for B rows.

    Returns:
        `nbest` hypotheses of each sentence, or fewer if there are no more sequences.

    Raises:
        CheckpointError: the model's probabilities are NaN.
    """
    state, options = model.start(source), options or SearchSettings()
    search = Search(model, state, limits, options, constraint, device=source.device)
    while len(search.places):
        search.length += 1
        search.step()
    return hypotheses(search.outputs, search.history[:, : search.length])


class Candidates(NamedTuple):
    """Continuations of each active sentence's hypotheses by one token, best first: all [A, C]."""

    scores: Tensor  # sums of log-probabilities; -inf for a continuation that is not allowed
    tokens: Tensor
    token_scores: Tensor
    rows: Tensor  # the hypothesis that is continued, of N

    def changed(self, change: Callable[[Tensor], Tensor]) -> Candidates:
        return Candidates(*map(change, self))


class Search:
    """The search of one batch, in tensors. Sentences leave it when they are done."""

    fixed = False
    """Whether all shapes stay as they are, and the host reads nothing: see `FixedSearch`."""

    def __init__(
        self,
        model: Decodable,
        state: DecoderState,
        limits: Sequence[int],
        options: SearchSettings,
        constraint: Constraint | None = None,
        *,
        device: torch.device,
        width: int = 1,
        steps: int = 64,
    ) -> None:
        B = len(limits)
        self.model, self.state, self.options, self.constraint = model, state, options, constraint
        self.length = 0
        self.now = torch.zeros(1, dtype=torch.long, device=device)  # the same on the device
        self.places = torch.arange(B, device=device)  # [A] of B
        self.limits = torch.tensor(limits, device=device)  # [A]
        self.penalties = length_penalty(self.limits + 1, options.alpha)  # [A], the greatest of each sentence
        self.scores = F.pad(torch.zeros((B, 1), device=device), (0, width - 1), value=-torch.inf)  # [A, W], best first
        self.last = torch.full((B, width), BOS, device=device)  # [A, W], the newest tokens
        # Of each output: the rank, the score, the tokens without EOS, the hypothesis of W that ended, and EOS's score.
        self.finished = torch.full((B, options.nbest, 5), -torch.inf, device=device)  # [A, nbest, 5]
        self.outputs = self.finished.clone()  # [B, nbest, 5], of the sentences that have left
        self.history = torch.empty((B, steps, options.beam, 3), device=device)  # [B, at least L, K, token, row, score]

    def step(self) -> None:
        """Extend the live hypotheses by a token, whose place is `length`, from 1."""
        self.now += 1
        candidates = self._candidates()
        ends = candidates.tokens == EOS
        if self.fixed or ends.any():
            candidates = self._finish(candidates, ends)
        live = candidates.changed(lambda part: part[:, : self.options.beam])
        done = self._done(live.scores[:, 0])
        if self.fixed or done.any():
            self._cut(done)
            live = self.leave(live, done)
        self._advance(live)

    def leave(self, live: Candidates, done: Tensor) -> Candidates:
        """Drop the sentences that are `done` [A]. The last ones take their places, so that few caches move."""
        self.outputs[self.places] = self.finished
        active = (~done).nonzero().flatten()
        kept = torch.arange(len(active), device=done.device)
        kept[done[: len(active)]] = active[active >= len(active)]
        for name in ("places", "limits", "penalties", "finished"):
            setattr(self, name, getattr(self, name)[kept])
        return live.changed(lambda part: part[kept])

    def _candidates(self) -> Candidates:
        """The 2 K best continuations of each sentence. At most K of them end, one of each row."""
        log_probabilities, self.state = self.model.step(self.last.flatten(), self.state)  # [N, V]
        restrict(log_probabilities, self.length, self.options, self.constraint)
        K = self.options.beam
        values, tokens = topk(log_probabilities, K + 1)  # [N, K + 1]
        values = values.clamp_(max=0.0)  # a rounding error above 0 would break the bound of early termination
        A, each = len(self.scores), values.size(1)
        totals = (self.scores.reshape(-1, 1) + values).view(A, -1)  # [A, W * (K + 1)]
        best = totals.sort(dim=1, descending=True, stable=True).indices[:, : 2 * K]
        rows = (
            best.div(each, rounding_mode="floor") + (torch.arange(A, device=best.device) * self.scores.size(1))[:, None]
        )
        scores, tokens, values = (part.view(A, -1).gather(1, best) for part in (totals, tokens, values))
        return Candidates(scores, tokens, values, rows)

    def _finish(self, candidates: Candidates, ends: Tensor) -> Candidates:
        """Finish the hypotheses whose EOS is among the K best candidates; return those that end last, and impossible.

        The scores of the hypotheses that are finished become -inf.
        """
        K, N = self.options.beam, self.scores.numel()
        first = candidates.changed(lambda part: part[:, :K])
        at_end = ends[:, :K] & ~first.scores.isneginf()
        scores = first.scores / length_penalty(self.now, self.options.alpha)
        self._enter(scores.masked_fill(~at_end, -torch.inf), scores, first.rows, first.token_scores)
        ended = torch.zeros(N + 1, dtype=torch.bool, device=ends.device)
        ended.index_fill_(0, torch.where(at_end, first.rows, N).flatten(), True)
        self.scores = self.scores.masked_fill(ended[:N].view_as(self.scores), -torch.inf)
        last = ends.to(torch.uint8).sort(dim=1, stable=True).indices
        possible = candidates._replace(scores=candidates.scores.masked_fill(ends, -torch.inf))
        return possible.changed(lambda part: part.gather(1, last))

    def _done(self, best_live: Tensor) -> Tensor:
        """Which sentences [A] are done, given the score of the best live hypothesis of each, [A]."""
        if not self.fixed:
            check_probabilities(best_live)
        done = best_live.isneginf() | (self.now > self.limits)
        worst = self.finished[:, -1, 0]
        if self.options.beam == 1:
            done |= worst > -torch.inf
        elif self.options.early_termination:
            done |= best_live / self.penalties <= worst
        return done

    def _cut(self, done: Tensor) -> None:
        """Fill up the outputs of `done` sentences [A] with the hypotheses that are live and have not ended."""
        live = done[:, None] & ~self.scores.isneginf()
        scores = self.scores / length_penalty(self.now - 1, self.options.alpha)
        rows = torch.arange(scores.size(1), device=done.device).expand_as(scores)
        self._enter(torch.where(live, CUT, -torch.inf), scores, rows, scores)

    def _enter(self, ranks: Tensor, scores: Tensor, rows: Tensor, ends: Tensor) -> None:
        """Keep the best of the outputs so far and of these [A, any]; of equal ranks, the first to come leads."""
        lengths = (self.now - 1).expand_as(rows)
        new = torch.stack([ranks, scores, lengths, rows % self.scores.size(1), ends], 2)
        outputs = torch.cat([self.finished, new], 1)
        best = outputs[..., 0].sort(dim=1, descending=True, stable=True).indices[:, : self.options.nbest]
        self.finished = outputs.gather(1, best[..., None].expand(-1, -1, 5))

    def _advance(self, live: Candidates) -> None:
        """Make `live` the hypotheses of the sentences that are active."""
        if self.options.beam > 1 or len(live.rows) < len(self.last):  # otherwise each row continues itself
            self.state = self.state.select(live.rows)
        if self.constraint is not None:
            self.constraint = self.constraint.advance(live.rows.flatten(), live.tokens.flatten())
        if self.length > self.history.size(1):
            self.history = F.pad(self.history, (0, 0, 0, 0, 0, self.length))
        new = torch.stack([live.tokens, live.rows % self.scores.size(1), live.token_scores], 2)
        self.history[self.places, self.now - 1, : new.size(1)] = new
        self.scores, self.last = live.scores, live.tokens


def hypotheses(outputs: Tensor, history: Tensor) -> list[list[Hypothesis]]:
    """Return the hypotheses of `outputs` [B, nbest, 5], whose tokens are in `history` [B, L, K, 3]."""
    pairs = zip(outputs.tolist(), history.tolist(), strict=True)
    return [[_hypothesis(steps, *each) for each in found if each[0] > -math.inf] for found, steps in pairs]


def _hypothesis(
    steps: Sequence[Sequence[Sequence[float]]], rank: float, score: float, length: float, row: float, end: float
) -> Hypothesis:
    """Return an output, whose tokens are found from the last to the first."""
    tokens: list[int] = []
    token_scores = [end] if rank > CUT else []
    for step in reversed(steps[: int(length)]):
        token, row, token_score = step[int(row)]
        tokens.append(int(token))
        token_scores.append(token_score)
    return Hypothesis(tokens[::-1], score, token_scores[::-1])


def check_probabilities(values: Tensor) -> None:
    """Raise CheckpointError if one of these probabilities of a model, or of their logarithms, is NaN."""
    if values.isnan().any():
        raise CheckpointError(
            "the model's probabilities are not numbers (NaN): its weights are damaged, or training diverged; "
            "use an earlier checkpoint"
        )


def restrict(log_probabilities: Tensor, length: int, options: SearchSettings, constraint: Constraint | None) -> None:
    """Set `log_probabilities` [N, V] to -inf, in place, where a token may not be the one at `length`, from 1."""
    if constraint is not None:
        constraint.restrict(log_probabilities)
    end = EOS if length > options.min_length else EOS + 1
    # The special symbols come first.
    for tokens in (slice(PAD, UNK), slice(UNK + 1, end)) if options.unknown else (slice(PAD, end),):
        log_probabilities[:, tokens].fill_(-torch.inf)
    if options.never_generated:
        log_probabilities[:, -options.never_generated :].fill_(-torch.inf)
