"""Beam search with the length penalty, output limits and early termination of section 6.1, for any `Decodable`.

Letters: B sentences, A of them still active, W live hypotheses of each (1 at first, then the beam), N = A * W rows of
    the decoder state, L tokens so far, V vocabulary, C candidates of a sentence, K the beam.

|Y| counts the end-of-sentence token, as in the paper's own code: an output that is empty has a length of 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from nmt_cli.decoding.options import SearchOptions
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
    options: SearchOptions | None = None,
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
    if len(limits) != len(source):
        raise ValueError(f"{len(source)} sentences, but {len(limits)} limits")
    if not len(source):
        return []
    return _Search(model, source, limits, options or SearchOptions(), constraint).run()


@dataclass
class _Candidates:
    """Continuations of each active sentence's hypotheses by one token, best first: all [A, C]."""

    scores: Tensor  # sums of log-probabilities; -inf for a continuation that is not allowed
    tokens: Tensor
    token_scores: Tensor
    rows: Tensor  # [A, C] of N: the hypothesis that is continued

    def pick(self, columns: Tensor) -> _Candidates:
        """Return the candidates [A, C'] at `columns` [A, C']."""
        parts = (self.scores, self.tokens, self.token_scores, self.rows)
        return _Candidates(*(part.gather(1, columns) for part in parts))


class _Search:
    """The search of one batch. Sentences leave it when they are done."""

    def __init__(
        self,
        model: Decodable,
        source: Tensor,
        limits: Sequence[int],
        options: SearchOptions,
        constraint: Constraint | None,
    ) -> None:
        B, device = len(source), source.device
        self.model, self.options, self.constraint = model, options, constraint
        self.state = model.start(source)
        self.sentences = torch.arange(B, device=device)  # [A]
        self.limits = torch.tensor(limits, device=device)  # [A]
        self.scores = torch.zeros((B, 1), device=device)  # [A, W], best first
        self.tokens = torch.full((B, 1), BOS, device=device)  # [N, 1 + L]
        self.token_scores = torch.zeros((B, 0), device=device)  # [N, L]
        self.finished: list[list[Hypothesis]] = [[] for _ in limits]  # the `nbest` best of each sentence, best first
        self.never = torch.tensor([PAD, BOS] if options.unknown else [PAD, BOS, UNK], device=device)

    def run(self) -> list[list[Hypothesis]]:
        """Extend the live hypotheses by a token until every sentence is done."""
        length = 0
        while len(self.sentences):
            length += 1
            candidates = self._candidates(length)
            ended = self._finish(candidates, length)
            live = self._live(candidates)
            done = self._done(live.scores[:, 0], length)
            self._cut(done, ended, length)
            self._advance(live, ~done)
        return self.finished

    def _candidates(self, length: int) -> _Candidates:
        """The 2 K best continuations of each sentence. At most K of them end, one of each row."""
        log_probabilities, self.state = self.model.step(self.tokens[:, -1], self.state)  # [N, V]
        if self.constraint is not None:
            log_probabilities = log_probabilities.clone()
            self.constraint.restrict(log_probabilities)
        K = self.options.beam
        values, tokens = topk(log_probabilities, K + 1 + len(self.never))  # [N, C / W]
        forbidden = torch.isin(tokens, self.never)
        if length <= self.options.min_length:
            forbidden |= tokens == EOS
        # A rounding error above 0 would break the bound of early termination.
        values = values.clamp(max=0.0).masked_fill(forbidden, -torch.inf)
        totals = (self.scores.reshape(-1, 1) + values).view(len(self.sentences), -1)  # [A, C]
        rows = torch.arange(len(tokens), device=tokens.device).unsqueeze(1).expand_as(tokens)
        best = totals.sort(dim=1, descending=True, stable=True).indices[:, : 2 * K]
        return _Candidates(totals, *(part.reshape(totals.shape) for part in (tokens, values, rows))).pick(best)

    def _finish(self, candidates: _Candidates, length: int) -> Tensor:
        """Finish the hypotheses whose EOS is among the K best candidates; return which of [A, W] those are."""
        K = self.options.beam
        at_end = (candidates.tokens[:, :K] == EOS) & ~candidates.scores[:, :K].isneginf()
        ended = torch.zeros(self.scores.numel(), dtype=torch.bool, device=at_end.device)
        if at_end.any():
            rows = candidates.rows[:, :K][at_end]
            ended[rows] = True
            scores = candidates.scores[:, :K][at_end] / self._penalty(length)
            sentences = self.sentences.unsqueeze(1).expand_as(at_end)[at_end].tolist()
            end_scores = candidates.token_scores[:, :K][at_end]
            for sentence, hypothesis in zip(sentences, self._hypotheses(rows, scores, end_scores), strict=True):
                self.finished[sentence].append(hypothesis)
            for sentence in set(sentences):  # the sort is stable: of equal scores, the first to end comes first
                self.finished[sentence].sort(key=lambda hypothesis: -hypothesis.score)
                del self.finished[sentence][self.options.nbest :]
        return ended.view_as(self.scores)

    def _live(self, candidates: _Candidates) -> _Candidates:
        """The K best candidates that do not end, [A, K]."""
        ends = candidates.tokens == EOS
        candidates.scores = candidates.scores.masked_fill(ends, -torch.inf)
        return candidates.pick(ends.to(torch.uint8).sort(dim=1, stable=True).indices[:, : self.options.beam])

    def _done(self, best_live: Tensor, length: int) -> Tensor:
        """Which sentences [A] are done, given the score of the best live hypothesis of each, [A]."""
        if best_live.isnan().any():
            raise CheckpointError(
                "the model's probabilities are not numbers (NaN): its weights are damaged, or training diverged; "
                "use an earlier checkpoint"
            )
        done = best_live.isneginf() | (length > self.limits)
        nbest = self.options.nbest
        finished = (self.finished[sentence] for sentence in self.sentences.tolist())
        worst = [each[-1].score if len(each) == nbest else -torch.inf for each in finished]
        worst_finished = torch.tensor(worst, device=best_live.device)
        if self.options.beam == 1:
            done |= worst_finished > -torch.inf
        elif self.options.early_termination:
            done |= best_live / length_penalty(self.limits + 1, self.options.alpha) <= worst_finished
        return done

    def _cut(self, done: Tensor, ended: Tensor, length: int) -> None:
        """Fill up the outputs of `done` sentences [A] with the hypotheses that are live but not `ended` [A, W]."""
        cut = (done.unsqueeze(1) & ~ended & ~self.scores.isneginf()).nonzero()
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

    def _advance(self, live: _Candidates, active: Tensor) -> None:
        """Make `live` the hypotheses of the sentences that are `active` [A], and drop the other sentences."""
        rows, tokens = live.rows[active].flatten(), live.tokens[active].flatten()
        if self.options.beam > 1 or len(rows) < len(self.tokens):  # otherwise each row continues itself
            self.state = self.state.select(rows)
        if self.constraint is not None:
            self.constraint = self.constraint.advance(rows, tokens)
        self.tokens = torch.cat([self.tokens[rows], tokens.unsqueeze(1)], dim=1)
        self.token_scores = torch.cat([self.token_scores[rows], live.token_scores[active].view(-1, 1)], dim=1)
        self.scores = live.scores[active]
        self.sentences, self.limits = self.sentences[active], self.limits[active]

    def _penalty(self, length: int) -> Tensor:
        return length_penalty(torch.tensor(float(length), device=self.scores.device), self.options.alpha)
