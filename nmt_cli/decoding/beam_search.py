"""Beam search with the length penalty, output limits and early termination of section 6.1, for any `Decodable`.

Letters: B sentences, A of them still active, W live hypotheses of each (1 at first, then the beam), N = A * W rows of
    the decoder state, L tokens so far, V vocabulary, C candidates of a sentence, K the beam.

|Y| counts the end-of-sentence token, as in the paper's own code: an output that is empty has a length of 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from nmt_cli.decoding.options import SearchSettings
from nmt_cli.decoding.topk import topk
from nmt_cli.errors import CheckpointError
from nmt_cli.interfaces import BOS, EOS, PAD, UNK, Constraint, Decodable, Hypothesis


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
    return _Search(model, source, limits, options or SearchSettings(), constraint).run()


class _Candidates(NamedTuple):
    """Continuations of each active sentence's hypotheses by one token, best first: all [A, C]."""

    scores: Tensor  # sums of log-probabilities; -inf for a continuation that is not allowed
    tokens: Tensor
    token_scores: Tensor
    rows: Tensor  # the hypothesis that is continued, of N


class _Search:
    """The search of one batch. Sentences leave it when they are done."""

    def __init__(
        self,
        model: Decodable,
        source: Tensor,
        limits: Sequence[int],
        options: SearchSettings,
        constraint: Constraint | None,
    ) -> None:
        B, device = len(source), source.device
        self.model, self.options, self.constraint = model, options, constraint
        self.state = model.start(source)
        self.sentences = torch.arange(B, device=device)  # [A]
        self.limits = torch.tensor(limits, device=device)  # [A]
        self.penalties = length_penalty(self.limits + 1, options.alpha)  # [A], the greatest of each sentence
        self.worst = torch.full((B,), -torch.inf, device=device)  # [A], score of the last of `nbest` finished ones
        self.scores = torch.zeros((B, 1), device=device)  # [A, W], best first
        self.tokens = torch.full((B, 1), BOS, device=device)  # [N, 1 + L]
        self.token_scores = torch.zeros((B, 0), device=device)  # [N, L]
        self.finished: list[list[Hypothesis]] = [[] for _ in limits]  # the `nbest` best of each sentence, best first

    def run(self) -> list[list[Hypothesis]]:
        """Extend the live hypotheses by a token until every sentence is done."""
        length = 0
        while len(self.sentences):
            length += 1
            candidates = self._candidates(length)
            ends = candidates.tokens == EOS
            ended = None
            if ends.any():
                ended = self._finish(candidates, ends, length)
                candidates = _without(candidates, ends)
            live = _Candidates(*(part[:, : self.options.beam] for part in candidates))
            done = self._done(live.scores[:, 0], length)
            if done.any():
                self._cut(done, ended, length)
                live = self._leave(live, done)
            self._advance(live)
        return self.finished

    def _candidates(self, length: int) -> _Candidates:
        """The 2 K best continuations of each sentence. At most K of them end, one of each row."""
        log_probabilities, self.state = self.model.step(self.tokens[:, -1], self.state)  # [N, V]
        restrict(log_probabilities, length, self.options, self.constraint)
        K = self.options.beam
        values, tokens = topk(log_probabilities, K + 1)  # [N, K + 1]
        values = values.clamp_(max=0.0)  # a rounding error above 0 would break the bound of early termination
        A, each = len(self.sentences), values.size(1)
        totals = (self.scores.reshape(-1, 1) + values).view(A, -1)  # [A, W * (K + 1)]
        best = totals.sort(dim=1, descending=True, stable=True).indices[:, : 2 * K]
        rows = (
            best.div(each, rounding_mode="floor") + (torch.arange(A, device=best.device) * self.scores.size(1))[:, None]
        )
        scores, tokens, values = (part.view(A, -1).gather(1, best) for part in (totals, tokens, values))
        return _Candidates(scores, tokens, values, rows)

    def _finish(self, candidates: _Candidates, ends: Tensor, length: int) -> Tensor:
        """Finish the hypotheses whose EOS is among the K best candidates; return which of [A, W] those are."""
        K = self.options.beam
        at_end = ends[:, :K] & ~candidates.scores[:, :K].isneginf()
        ended = torch.zeros(self.scores.numel(), dtype=torch.bool, device=at_end.device)
        which = at_end.nonzero(as_tuple=True)  # once, as a GPU is waited for
        first = _Candidates(*(part[which] for part in candidates))
        ended[first.rows] = True
        places = which[0].tolist()
        sentences = self.sentences[places].tolist()
        hypotheses = self._hypotheses(first.rows, first.scores / self._penalty(length), first.token_scores)
        for sentence, hypothesis in zip(sentences, hypotheses, strict=True):
            self.finished[sentence].append(hypothesis)
        nbest = self.options.nbest
        for place, sentence in set(zip(places, sentences, strict=True)):
            found = self.finished[sentence]
            found.sort(key=lambda hypothesis: -hypothesis.score)  # stable: of equal scores, the first to end leads
            del found[nbest:]
            if len(found) == nbest:
                self.worst[place] = found[-1].score
        return ended.view_as(self.scores)

    def _done(self, best_live: Tensor, length: int) -> Tensor:
        """Which sentences [A] are done, given the score of the best live hypothesis of each, [A]."""
        check_probabilities(best_live)
        done = best_live.isneginf() | (length > self.limits)
        if self.options.beam == 1:
            done |= self.worst > -torch.inf
        elif self.options.early_termination:
            done |= best_live / self.penalties <= self.worst
        return done

    def _cut(self, done: Tensor, ended: Tensor | None, length: int) -> None:
        """Fill up the outputs of `done` sentences [A] with the hypotheses that are live but not `ended` [A, W]."""
        live = done.unsqueeze(1) & ~self.scores.isneginf()
        cut = (live if ended is None else live & ~ended).nonzero()
        nbest = self.options.nbest
        sentences = self.sentences[cut[:, 0]].tolist()
        if all(len(self.finished[sentence]) == nbest for sentence in sentences):
            return
        rows = cut[:, 0] * self.scores.shape[1] + cut[:, 1]
        hypotheses = self._hypotheses(rows, self.scores.flatten()[rows] / self._penalty(length - 1))
        for sentence, hypothesis in zip(sentences, hypotheses, strict=True):
            if len(self.finished[sentence]) < nbest:
                self.finished[sentence].append(hypothesis)

    def _hypotheses(self, rows: Tensor, scores: Tensor, end_scores: Tensor | None = None) -> list[Hypothesis]:
        """The hypotheses in `rows` of N, with their length-normalised scores."""
        token_scores = self.token_scores[rows]
        if end_scores is not None:
            token_scores = torch.cat([token_scores, end_scores.unsqueeze(1)], dim=1)
        columns = (self.tokens[rows, 1:].tolist(), scores.tolist(), token_scores.tolist())
        return [Hypothesis(*values) for values in zip(*columns, strict=True)]

    def _leave(self, live: _Candidates, done: Tensor) -> _Candidates:
        """Drop the sentences that are `done` [A]. The last ones take their places, so that few caches move."""
        active = (~done).nonzero().flatten()
        kept = torch.arange(len(active), device=done.device)
        kept[done[: len(active)]] = active[active >= len(active)]
        for name in ("sentences", "limits", "penalties", "worst"):
            setattr(self, name, getattr(self, name)[kept])
        return _Candidates(*(part[kept] for part in live))

    def _advance(self, live: _Candidates) -> None:
        """Make `live` the hypotheses of the sentences that are active."""
        rows, tokens = live.rows.flatten(), live.tokens.flatten()
        if self.options.beam > 1 or len(rows) < len(self.tokens):  # otherwise each row continues itself
            self.state = self.state.select(live.rows)
        if self.constraint is not None:
            self.constraint = self.constraint.advance(rows, tokens)
        self.tokens = torch.cat([self.tokens[rows], tokens.unsqueeze(1)], dim=1)
        self.token_scores = torch.cat([self.token_scores[rows], live.token_scores.reshape(-1, 1)], dim=1)
        self.scores = live.scores

    def _penalty(self, length: int) -> Tensor:
        return length_penalty(torch.tensor(float(length)), self.options.alpha)


def _without(candidates: _Candidates, ends: Tensor) -> _Candidates:
    """Return the candidates with those that end last, and impossible."""
    last = ends.to(torch.uint8).sort(dim=1, stable=True).indices
    possible = candidates._replace(scores=candidates.scores.masked_fill(ends, -torch.inf))
    return _Candidates(*(part.gather(1, last) for part in possible))


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
    never = [PAD, BOS] if options.unknown else [PAD, BOS, UNK]
    for token in never if length > options.min_length else [*never, EOS]:
        log_probabilities[:, token] = -torch.inf
