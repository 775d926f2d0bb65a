"""Beam search with the length penalty, output limits and early termination of section 6.1, for any
`Decodable`.

Letters: B sentences, A of them not done, W live hypotheses of each (1 at first, then the beam), N =
    A * W rows of the decoder state, L tokens so far, V vocabulary, C candidates of a sentence, K
    the beam.

|Y| counts the end-of-sentence token, as in the paper's own code: an output that is empty has a
length of 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor

from nmt_cli.decoding.choice import topk
from nmt_cli.decoding.options import SearchSettings
from nmt_cli.errors import CheckpointError
from nmt_cli.interfaces import BOS, EOS, PAD, UNK, Constraint, Decodable, DecoderState, Hypothesis


def length_penalty(length: Tensor, alpha: float) -> Tensor:
    """((5 + |Y|) / 6)^alpha, the divisor of a log-probability (Wu et al. 2016, equation 14; section
    6.1).
    """
    return ((5.0 + length) / 6.0) ** alpha


@dataclass(frozen=True)
class LengthPenalty:
    """The scores by which outputs of different lengths are compared: the paper's, if a subclass has
    no others.
    """

    alpha: float

    def score(self, log_probability: Tensor, length: Tensor) -> Tensor:
        """Return the scores of outputs of a `log_probability` and a `length`, EOS included, which
        broadcast.
        """
        return log_probability / length_penalty(length, self.alpha)

    def bound(self, log_probability: Tensor, longest: Tensor) -> Tensor:
        """Return what no score exceeds of hypotheses that are continued to a length of `longest` at
        most.

        The log-probability of a hypothesis only falls, and the paper's penalty is greatest at the
        limit.
        """
        return self.score(log_probability, longest)


@torch.inference_mode()
def beam_search(
    model: Decodable,
    source: Tensor,
    limits: Sequence[int],
    options: SearchSettings | None = None,
    constraint: Constraint | None = None,
) -> list[list[Hypothesis]]:
    """Return the best outputs of each sentence, best first.

    A hypothesis is finished if EOS is among the K best candidates of its sentence. A sentence is
    done when no live hypothesis can beat the worst of its `nbest` finished ones. Greedy search, a
    beam of 1, ends at the first EOS. Hypotheses that reach the limit, or for which a constraint
    allows no token, are cut off: they follow the finished ones, and their `token_scores` have no
    entry for EOS.

    Args:
        source: [B, S], padded, each row ends in EOS.
        limits: the maximum number of tokens, without EOS, of each sentence's output.
        constraint: the tokens that are allowed next, for B rows.

    Returns:
        `nbest` hypotheses of each sentence, or fewer if there are no more sequences.

    Raises:
        CheckpointError: the model's probabilities are NaN.
    """
    search = Search(
        model,
        model.start(source),
        limits,
        options or SearchSettings(),
        constraint,
        device=source.device,
    )
    while len(search.sentences.places):
        search.step()
    return hypotheses(search.outputs, search.history, search.length, search.options.nbest)


@dataclass(frozen=True)
class Tensors:
    """Tensors of the same first dimensions."""

    def map(self, change: Callable[[Tensor], Tensor]) -> Self:
        return type(self)(**{name: change(tensor) for name, tensor in vars(self).items()})

    def all(self) -> list[Tensor]:
        return list(vars(self).values())


@dataclass(frozen=True)
class Candidates(Tensors):
    """Continuations of each sentence's hypotheses by one token, best first: all [A, C]."""

    scores: Tensor  # sums of log-probabilities; -inf for a continuation that is not allowed
    tokens: Tensor
    token_scores: Tensor
    rows: Tensor  # the hypothesis that is continued, of N


@dataclass(frozen=True)
class Outputs(Tensors):
    """Hypotheses of each sentence that are not continued: all [A, any]."""

    scores: Tensor  # with the length penalty; -inf for none
    lengths: Tensor  # in tokens, without EOS
    rows: Tensor  # the hypothesis, of W
    end_scores: Tensor  # the log-probability of EOS; NaN for a hypothesis that was cut off

    @classmethod
    def none(cls, sentences: int, number: int, device: torch.device) -> Outputs:
        scores = torch.full((sentences, number), -torch.inf, device=device)
        lengths = torch.zeros_like(scores, dtype=torch.long)
        return cls(scores, lengths, lengths.clone(), scores.clone())

    def followed_by(self, others: Outputs) -> Outputs:
        return Outputs(
            *(torch.cat(pair, dim=1) for pair in zip(self.all(), others.all(), strict=True))
        )

    def best(self, number: int) -> Outputs:
        """The best `number` outputs of each sentence, best first. Of equal scores, the first leads."""
        order = self.scores.sort(dim=1, descending=True, stable=True).indices[:, :number]
        return self.map(lambda part: part.gather(1, order))


@dataclass(frozen=True)
class History(Tensors):
    """The hypotheses after each step: all [B, at least L, K]."""

    tokens: Tensor
    rows: Tensor  # of W, the hypothesis that was continued
    token_scores: Tensor


@dataclass
class Sentences:
    """The sentences that are not done."""

    places: Tensor  # [A] of B
    limits: Tensor  # [A]
    finished: Outputs  # [A, nbest], best first

    def keep(self, rows: Tensor) -> Sentences:
        return Sentences(
            self.places[rows], self.limits[rows], self.finished.map(lambda part: part[rows])
        )


class Search:
    """The search of one batch. Sentences leave it when they are done.

    `finish` and `leave` ask the device whether there is something to do. A subclass may do it
    without the question.
    """

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
        B, K = len(limits), options.beam
        self.model, self.state, self.options, self.constraint = model, state, options, constraint
        self.penalty = options.penalty or LengthPenalty(options.alpha)
        self.length = 0  # of the hypotheses, with the token that is searched for
        self.now = torch.zeros(1, dtype=torch.long, device=device)  # the same on the device
        finished = Outputs.none(B, options.nbest, device)
        self.sentences = Sentences(
            torch.arange(B, device=device), torch.tensor(limits, device=device), finished
        )
        # [A, W], best first.
        self.scores = F.pad(torch.zeros((B, 1), device=device), (0, width - 1), value=-torch.inf)
        self.last = torch.full((B, width), BOS, device=device)  # [A, W], the newest tokens
        self.outputs = Outputs.none(B, options.nbest + K, device)  # of the sentences that have left
        none = torch.zeros((B, steps, K), dtype=torch.long, device=device)
        self.history = History(none, none.clone(), none.float())

    def step(self) -> None:
        """Extend the live hypotheses by a token."""
        self.length += 1
        self.now += 1
        candidates = self._candidates()
        candidates = self.finish(candidates, candidates.tokens == EOS)
        live = candidates.map(lambda part: part[:, : self.options.beam])
        live = self.leave(live, self._done(live.scores[:, 0]))
        self._advance(live)

    def _candidates(self) -> Candidates:
        """The 2 K best continuations of each sentence. At most K of them end, one of each row."""
        log_probabilities, self.state = self.model.step(self.last.flatten(), self.state)  # [N, V]
        restrict(log_probabilities, self.length, self.options, self.constraint)
        (A, W), K = self.scores.shape, self.options.beam
        token_scores, tokens = topk(log_probabilities, K + 1)  # [N, K + 1]
        # A rounding error above 0 would break the bound of early termination.
        token_scores = token_scores.clamp(max=0.0)
        scores = self.scores[:, :, None] + token_scores.view(A, W, -1)  # [A, W, K + 1]
        rows = torch.arange(A * W, device=scores.device).view(A, W, 1).expand_as(scores)
        candidates = Candidates(scores, tokens, token_scores, rows).map(
            lambda part: part.reshape(A, -1)
        )
        best = candidates.scores.sort(dim=1, descending=True, stable=True).indices[:, : 2 * K]
        return candidates.map(lambda part: part.gather(1, best))

    def finish(self, candidates: Candidates, ends: Tensor) -> Candidates:
        """Do `take_ends` if a candidate `ends` [A, C]."""
        return self.take_ends(candidates, ends) if ends.any() else candidates

    def take_ends(self, candidates: Candidates, ends: Tensor) -> Candidates:
        """Finish the hypotheses whose EOS is among the K best candidates. Return the candidates
        that do not end first.

        A hypothesis that is finished is not cut off later: its score becomes -inf.
        """
        K, W = self.options.beam, self.scores.size(1)
        first = candidates.map(lambda part: part[:, :K])
        at_end, rows = ends[:, :K] & ~first.scores.isneginf(), first.rows % W
        scores = self.penalty.score(first.scores, self.now).masked_fill(~at_end, -torch.inf)
        outputs = Outputs(scores, (self.now - 1).expand_as(rows), rows, first.token_scores)
        self.sentences.finished = self.sentences.finished.followed_by(outputs).best(
            self.options.nbest
        )
        ended = torch.zeros_like(self.scores, dtype=torch.long).scatter_add(1, rows, at_end.long())
        self.scores = self.scores.masked_fill(ended > 0, -torch.inf)
        possible = replace(candidates, scores=candidates.scores.masked_fill(ends, -torch.inf))
        order = ends.to(torch.uint8).sort(dim=1, stable=True).indices
        return possible.map(lambda part: part.gather(1, order))

    def _done(self, best_live: Tensor) -> Tensor:
        """Which sentences [A] are done, given the score of the best live hypothesis of each, [A]."""
        limits, worst = self.sentences.limits, self.sentences.finished.scores[:, -1]
        done = best_live.isneginf() | (self.now > limits)
        if self.options.beam == 1:
            done |= worst > -torch.inf
        elif self.options.early_termination:
            done |= self.penalty.bound(best_live, limits + 1) <= worst
        return done

    def leave(self, live: Candidates, done: Tensor) -> Candidates:
        """Drop the sentences that are `done` [A]. The last ones take their places, so that few
        caches move.
        """
        check_probabilities(live.scores[:, 0])
        if not done.any():
            return live
        outputs = self.sentences.finished.followed_by(self.cut_off()).map(lambda part: part[done])
        for of_all, of_done in zip(self.outputs.all(), outputs.all(), strict=True):
            of_all[self.sentences.places[done], : of_done.size(1)] = of_done
        active = (~done).nonzero().flatten()
        kept = torch.arange(len(active), device=done.device)
        kept[done[: len(active)]] = active[active >= len(active)]
        self.sentences = self.sentences.keep(kept)
        return live.map(lambda part: part[kept])

    def cut_off(self) -> Outputs:
        """The live hypotheses [A, W] as outputs without their end."""
        scores = self.penalty.score(self.scores, self.now - 1)
        rows = torch.arange(scores.size(1), device=scores.device).expand_as(scores)
        return Outputs(
            scores, (self.now - 1).expand_as(rows), rows, torch.full_like(scores, torch.nan)
        )

    def _advance(self, live: Candidates) -> None:
        """Make `live` the hypotheses of the sentences that are left."""
        if self.options.beam > 1 or len(live.rows) < len(
            self.last
        ):  # otherwise each row continues itself
            self.state = self.state.select(live.rows)
        if self.constraint is not None:
            self.constraint = self.constraint.advance(live.rows.flatten(), live.tokens.flatten())
        if self.length > self.history.tokens.size(1):
            self.history = self.history.map(lambda part: F.pad(part, (0, 0, 0, self.length)))
        step = History(live.tokens, live.rows % self.scores.size(1), live.token_scores)
        for steps, new in zip(self.history.all(), step.all(), strict=True):
            steps[self.sentences.places, self.now - 1, : new.size(1)] = new
        self.scores, self.last = live.scores, live.tokens


def hypotheses(
    outputs: Outputs, history: History, length: int, nbest: int
) -> list[list[Hypothesis]]:
    """Return the first `nbest` outputs of each sentence [B, any], or fewer if there are none, after
    `length` steps.
    """
    steps = history.map(lambda part: part[:, :length])
    results = []
    for tokens, rows, token_scores, *columns in zip(
        *(part.tolist() for part in steps.all() + outputs.all()), strict=True
    ):
        found = [output for output in zip(*columns, strict=True) if output[0] > -math.inf]
        results.append(
            [_hypothesis(tokens, rows, token_scores, *output) for output in found[:nbest]]
        )
    return results


def _hypothesis(
    tokens: Sequence[Sequence[int]],
    rows: Sequence[Sequence[int]],
    token_scores: Sequence[Sequence[float]],
    score: float,
    length: int,
    row: int,
    end_score: float,
) -> Hypothesis:
    """Return an output. Its tokens are found from the last to the first in those of all steps,
    which are [L][K].
    """
    output: list[int] = []
    scores = [] if math.isnan(end_score) else [end_score]
    for step in reversed(range(length)):
        output.append(tokens[step][row])
        scores.append(token_scores[step][row])
        row = rows[step][row]
    return Hypothesis(output[::-1], score, scores[::-1])


def check_probabilities(values: Tensor) -> None:
    """Raise CheckpointError if one of these probabilities of a model, or of their logarithms, is
    NaN.
    """
    if values.isnan().any():
        raise CheckpointError(
            "the model's probabilities are not numbers (NaN): its weights are damaged, or training "
            "diverged; "
            "use an earlier checkpoint"
        )


def restrict(
    log_probabilities: Tensor, length: int, options: SearchSettings, constraint: Constraint | None
) -> None:
    """Set `log_probabilities` [N, V] to -inf, in place, where a token may not be the one at
    `length`, from 1.
    """
    if constraint is not None:
        constraint.restrict(log_probabilities)
    forbidden = [PAD, BOS]
    if not options.unknown:
        forbidden.append(UNK)
    if length <= options.min_length:
        forbidden.append(EOS)
    for token in forbidden:
        log_probabilities[:, token].fill_(-torch.inf)
    if options.never_generated:
        log_probabilities[:, -options.never_generated :].fill_(-torch.inf)
