"""Beam search with the length penalty, output limits and early termination of section 6.1. It knows no model.

Letters: B sentences, A of them still active, W live hypotheses for each of those (1 at first, then the beam), N = A * W
    rows of the model's state, V vocabulary, C candidates a sentence, K the beam.

|Y| counts the end-of-sentence token, as in the paper's own code: the first token, be it the end, has a penalty of 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from nmt_cli.decoding.options import SearchOptions
from nmt_cli.decoding.topk import topk
from nmt_cli.errors import CheckpointError
from nmt_cli.interfaces import BOS, EOS, PAD, UNK, Constraint, Decodable, DecoderState, Hypothesis


def length_penalty(length: Tensor, alpha: float) -> Tensor:
    """((5 + |Y|) / 6)^alpha, by which a log-probability is divided (Wu et al. 2016, equation 14; section 6.1).

    Args:
        length: |Y| in tokens, the end of the sentence counted; any shape.
    """
    return ((5.0 + length) / 6.0) ** alpha


@torch.inference_mode()
def beam_search(
    model: Decodable,
    source: Tensor,
    limits: Sequence[int],
    options: SearchOptions | None = None,
    constraint: Constraint | None = None,
) -> list[list[Hypothesis]]:
    """The best outputs of each sentence, best first.

    An end of sentence finishes a hypothesis when it is among the beam's K best candidates. The search of a sentence
    ends when no live hypothesis can still beat the worst of the `nbest` kept ones: scores only fall, and the penalty is
    greatest at the limit. A beam of one is greedy search and ends at the first end of sentence. Hypotheses that are
    still live at the limit are cut there: they stand after all that ended, and without an end in their `token_scores`;
    so do those to which a constraint leaves no token.

    Args:
        source: [B, S], padded, each row ending in EOS.
        limits: the most tokens, EOS not counted, that an output of each sentence may have.
        constraint: which tokens may follow; it begins with B rows.

    Returns:
        For each sentence `nbest` hypotheses, fewer only where there are no more sequences to be had.

    Raises:
        CheckpointError: the model's probabilities are not numbers.
    """
    if len(limits) != len(source):
        raise ValueError(f"{len(source)} sentences, but {len(limits)} limits")
    if not len(source):
        return []
    return _Search(model, source, limits, options or SearchOptions(), constraint).run()


@dataclass
class _Candidates:
    """Continuations of live hypotheses, best first: all [A, C]."""

    scores: Tensor  # sums of log-probabilities; minus infinity for what may not be
    tokens: Tensor
    token_scores: Tensor
    rows: Tensor  # the row of the hypothesis that is continued

    def pick(self, order: Tensor) -> _Candidates:
        """The candidates [A, C'] at the columns `order` [A, C']."""
        parts = (self.scores, self.tokens, self.token_scores, self.rows)
        return _Candidates(*(part.gather(1, order) for part in parts))


@dataclass
class _History:
    """Which row of the step before each row continues, and by which token; the outputs are read from it at the end."""

    rows: list[Tensor] = field(default_factory=list)
    tokens: list[Tensor] = field(default_factory=list)
    token_scores: list[Tensor] = field(default_factory=list)

    def append(self, rows: Tensor, tokens: Tensor, token_scores: Tensor) -> None:
        self.rows.append(rows)
        self.tokens.append(tokens)
        self.token_scores.append(token_scores)

    def to_lists(self) -> list[tuple[list[int], list[int], list[float]]]:
        """The same for Python, one triple a step."""
        steps = zip(self.rows, self.tokens, self.token_scores, strict=True)
        return [(rows.tolist(), tokens.tolist(), scores.tolist()) for rows, tokens, scores in steps]


class _Kept:
    """The best finished hypotheses of all B sentences, [B, nbest]; places still empty score minus infinity and come
    last."""

    def __init__(self, sentences: int, nbest: int, device: torch.device) -> None:
        self.scores = torch.full((sentences, nbest), -torch.inf, device=device)
        self.end_scores = torch.full_like(self.scores, torch.nan)  # of EOS; not a number where the hypothesis was cut
        self.lengths = torch.zeros((sentences, nbest), dtype=torch.long, device=device)
        self.rows = torch.zeros_like(self.lengths)  # after as many steps as the hypothesis has tokens

    def add_ended(self, sentences: Tensor, scores: Tensor, end_scores: Tensor, length: int, rows: Tensor) -> None:
        """Merges hypotheses that ended (all [A, C]); of equal ones, the first to end stays."""
        order = torch.cat([self.scores[sentences], scores], dim=1).sort(dim=1, descending=True, stable=True).indices
        self._merge(sentences, order, scores, end_scores, length, rows)

    def add_cut(self, sentences: Tensor, scores: Tensor, length: int, rows: Tensor) -> None:
        """Fills the places that are left with hypotheses that did not end (all [A, W], best first)."""
        empty = torch.cat([self.scores[sentences], scores], dim=1).isneginf()
        order = empty.to(torch.uint8).sort(dim=1, stable=True).indices
        self._merge(sentences, order, scores, torch.full_like(scores, torch.nan), length, rows)

    def _merge(
        self, sentences: Tensor, order: Tensor, scores: Tensor, end_scores: Tensor, length: int, rows: Tensor
    ) -> None:
        order = order[:, : self.scores.shape[1]]
        new = (scores, end_scores, torch.full_like(rows, length), rows)
        for kept, added in zip((self.scores, self.end_scores, self.lengths, self.rows), new, strict=True):
            kept[sentences] = torch.cat([kept[sentences], added], dim=1).gather(1, order)

    def to_hypotheses(self, history: _History) -> list[list[Hypothesis]]:
        """The kept hypotheses of each sentence, best first."""
        steps = history.to_lists()
        columns = (self.scores, self.end_scores, self.lengths, self.rows)
        sentences = zip(*(column.tolist() for column in columns), strict=True)
        return [
            [_read(steps, *place) for place in zip(*sentence, strict=True) if place[0] > -math.inf]
            for sentence in sentences
        ]


def _read(
    steps: list[tuple[list[int], list[int], list[float]]], score: float, end_score: float, length: int, row: int
) -> Hypothesis:
    """The hypothesis that stood in `row` after `length` steps."""
    tokens, token_scores = [], []
    for rows, step_tokens, step_scores in reversed(steps[:length]):
        tokens.append(step_tokens[row])
        token_scores.append(step_scores[row])
        row = rows[row]
    end = [] if math.isnan(end_score) else [end_score]
    return Hypothesis(tokens[::-1], score, token_scores[::-1] + end)


class _Search:
    """One search over a batch; sentences leave it as they finish."""

    def __init__(
        self,
        model: Decodable,
        source: Tensor,
        limits: Sequence[int],
        options: SearchOptions,
        constraint: Constraint | None,
    ) -> None:
        device = source.device
        self.model, self.options, self.constraint = model, options, constraint
        self.state: DecoderState = model.start(source)
        self.sentences = torch.arange(len(source), device=device)  # [A]
        self.limits = torch.tensor(limits, device=device)  # [A]
        self.tokens = torch.full((len(source),), BOS, device=device)  # [N]
        self.scores = torch.zeros((len(source), 1), device=device)  # [A, W], best first
        self.kept = _Kept(len(source), options.nbest, device)
        self.history = _History()
        self.never = torch.tensor([PAD, BOS] if options.unknown else [PAD, BOS, UNK], device=device)

    def run(self) -> list[list[Hypothesis]]:
        length = 0
        while len(self.sentences):
            length += 1
            self._step(length)
        return self.kept.to_hypotheses(self.history)

    def _step(self, length: int) -> None:
        """Gives each live hypothesis its token number `length`."""
        candidates = self._candidates(length)
        ended = self._keep_ended(candidates, length)
        live = self._live(candidates)
        done = self._done(live.scores[:, 0], length)
        self._keep_cut(done, ended, length)
        self._go_on(live, ~done)

    def _candidates(self, length: int) -> _Candidates:
        """The 2 K best continuations of each sentence: K of them, at least, do not end (one row has one end)."""
        log_probabilities, self.state = self.model.step(self.tokens, self.state)  # [N, V]
        if self.constraint is not None:
            log_probabilities = log_probabilities.masked_fill(~self.constraint.allowed(), -torch.inf)
        K = self.options.beam
        values, tokens = topk(log_probabilities, K + 1 + len(self.never))  # [N, C / W]
        values = values.clamp(max=0.0)  # a rounding error above 0 would break the bound of early termination
        values = values.masked_fill(self._forbidden(tokens, length), -torch.inf)
        totals = (self.scores.reshape(-1, 1) + values).view(len(self.sentences), -1)  # [A, C]
        order = totals.sort(dim=1, descending=True, stable=True).indices[:, : 2 * K]
        rows = torch.arange(len(tokens), device=tokens.device).unsqueeze(1).expand_as(tokens)
        every = _Candidates(totals, *(part.reshape(totals.shape) for part in (tokens, values, rows)))
        return every.pick(order)

    def _forbidden(self, tokens: Tensor, length: int) -> Tensor:
        forbidden = torch.isin(tokens, self.never)
        if length <= self.options.min_length:
            forbidden |= tokens == EOS
        return forbidden

    def _keep_ended(self, candidates: _Candidates, length: int) -> Tensor:
        """Keeps the ends among the K best candidates; returns which live hypotheses [A, W] have ended so."""
        K = self.options.beam
        scores, rows = candidates.scores[:, :K], candidates.rows[:, :K]
        ended = (candidates.tokens[:, :K] == EOS) & ~scores.isneginf()
        scores = (scores / self._penalty(length)).masked_fill(~ended, -torch.inf)
        self.kept.add_ended(self.sentences, scores, candidates.token_scores[:, :K], length - 1, rows)
        has_ended = torch.zeros(self.scores.numel(), dtype=torch.bool, device=rows.device)
        has_ended[rows[ended]] = True
        return has_ended.view_as(self.scores)

    def _live(self, candidates: _Candidates) -> _Candidates:
        """The K best candidates that do not end, [A, W]."""
        ended = candidates.tokens == EOS
        candidates.scores = candidates.scores.masked_fill(ended, -torch.inf)
        order = ended.to(torch.uint8).sort(dim=1, stable=True).indices
        return candidates.pick(order[:, : self.options.beam])

    def _done(self, best_live: Tensor, length: int) -> Tensor:
        """Which sentences [A] are finished, when the best live hypotheses have the scores `best_live` [A]."""
        if best_live.isnan().any():
            raise CheckpointError(
                "the model's probabilities are not numbers (NaN): its weights are damaged, or training diverged; "
                "use an earlier checkpoint"
            )
        worst_kept = self.kept.scores[self.sentences, -1]
        done = best_live.isneginf() | (length > self.limits)
        if self.options.beam == 1:
            done |= worst_kept > -torch.inf
        elif self.options.early_termination:
            reachable = best_live / length_penalty(self.limits + 1, self.options.alpha)
            done |= reachable <= worst_kept
        return done

    def _keep_cut(self, done: Tensor, ended: Tensor, length: int) -> None:
        """Keeps what lived until this step and has not ended, in sentences that are `done` with places left."""
        rows = torch.arange(self.scores.numel(), device=done.device).view_as(self.scores)
        scores = (self.scores / self._penalty(length - 1)).masked_fill(ended, -torch.inf)
        self.kept.add_cut(self.sentences[done], scores[done], length - 1, rows[done])

    def _go_on(self, live: _Candidates, active: Tensor) -> None:
        """Makes `live` the hypotheses of the sentences that are `active` [A], and drops the others."""
        rows, tokens = live.rows[active].flatten(), live.tokens[active].flatten()
        if self.options.beam > 1 or len(rows) < len(self.tokens):  # else each row continues itself
            self.state = self.state.select(rows)
        if self.constraint is not None:
            self.constraint = self.constraint.advance(rows, tokens)
        self.history.append(rows, tokens, live.token_scores[active].flatten())
        self.tokens, self.scores = tokens, live.scores[active]
        self.sentences, self.limits = self.sentences[active], self.limits[active]

    def _penalty(self, length: int) -> Tensor:
        return length_penalty(torch.tensor(float(length), device=self.scores.device), self.options.alpha)
