"""Beam search of section 6.1: length penalty, output limits and early termination.

Letters:
    B: sentences. A of them are not done.
    K: the beam.
    W: live hypotheses of a sentence, 1 at first and then K.
    N: A * W, the rows of the decoder state.
    L: tokens so far.
    C: candidates of a sentence.
    V: vocabulary.

|Y| counts the end-of-sentence token, as in the paper's own code. An empty output has the
length 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from nmt_cli.decoding.choice import topk
from nmt_cli.decoding.length_penalty import LengthPenalty
from nmt_cli.decoding.options import SearchSettings
from nmt_cli.errors import CheckpointError
from nmt_cli.interfaces import BOS, EOS, PAD, UNK, Constraint, Decodable, DecoderState, Hypothesis


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
    done when it has K finished ones, or before, when no live hypothesis can beat the worst of the
    `nbest` best. Hypotheses that reach the limit, or for which a constraint allows no token, are
    cut off: they follow the finished ones, and their `token_scores` have no entry for EOS.

    Args:
        source: [B, S], padded, each row ends in EOS.
        limits: the maximum number of tokens, without EOS, of each sentence's output.
        constraint: the tokens that are allowed next, for B rows.

    Returns:
        `nbest` hypotheses of each sentence, or fewer if there are no more sequences.

    Raises:
        CheckpointError: the model's probabilities are NaN.
    """
    options = options or SearchSettings()
    state = model.start(source)
    search = Search(model, state, limits, options, constraint, device=source.device)
    while len(search.sentences.places):
        search.step()
    return hypotheses(search.outputs, search.history, search.length, options.nbest)


@dataclass(frozen=True)
class Tensors:
    """Tensors of the same first dimensions."""

    def map(self, change: Callable[[Tensor], Tensor]) -> Self:
        return type(self)(**{name: change(tensor) for name, tensor in vars(self).items()})

    def all(self) -> list[Tensor]:
        return list(vars(self).values())

    def sentences(self) -> Iterator[tuple[list[Any], ...]]:
        """Yield the entries of each sentence, as lists."""
        return zip(*(tensor.tolist() for tensor in self.all()), strict=True)


@dataclass(frozen=True)
class Ranked(Tensors):
    """Tensors [A, any] that are ordered by their scores."""

    scores: Tensor

    def best(self, number: int) -> Self:
        """Return the best `number` of each sentence, best first. Equal scores keep their order."""
        order = self.scores.sort(dim=1, descending=True, stable=True).indices[:, :number]
        return self.map(lambda tensor: tensor.gather(1, order))


@dataclass(frozen=True)
class Candidates(Ranked):
    """Continuations of each sentence's hypotheses by one token: all [A, C].

    The scores are sums of log-probabilities. A continuation that is not allowed has -inf.
    """

    tokens: Tensor
    token_scores: Tensor
    rows: Tensor  # the hypothesis that is continued, of N


@dataclass(frozen=True)
class Outputs(Ranked):
    """Hypotheses of each sentence that are not continued: all [A, any].

    The scores have the length penalty. The score of no output is -inf.
    """

    lengths: Tensor  # in tokens, without EOS
    rows: Tensor  # the hypothesis, of W
    end_scores: Tensor  # the log-probability of EOS, NaN for a hypothesis that was cut off

    @classmethod
    def none(cls, sentences: int, number: int, device: torch.device) -> Outputs:
        scores = torch.full((sentences, number), -torch.inf, device=device)
        lengths = torch.zeros_like(scores, dtype=torch.long)
        return cls(scores, lengths, lengths.clone(), scores.clone())

    def followed_by(self, others: Outputs) -> Outputs:
        pairs = zip(self.all(), others.all(), strict=True)
        return Outputs(*(torch.cat(pair, dim=1) for pair in pairs))


@dataclass(frozen=True)
class History(Tensors):
    """The hypotheses after each step: all [B, at least L, K]."""

    tokens: Tensor
    rows: Tensor  # the hypothesis that was continued, of W
    token_scores: Tensor


@dataclass
class Sentences:
    """The sentences that are not done."""

    places: Tensor  # [A], of B
    limits: Tensor  # [A]
    finished: Outputs  # [A, K], best first

    def keep(self, rows: Tensor) -> Sentences:
        finished = self.finished.map(lambda tensor: tensor[rows])
        return Sentences(self.places[rows], self.limits[rows], finished)


class Search:
    """The search of one batch. Sentences leave it when they are done.

    `finish` and `leave` ask the device whether there is something to do. A subclass may do it
    without the question, or continue hypotheses in another way.
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
        # The length, on the device: [1], or [A] in a subclass whose sentences have their own.
        self.now = torch.zeros(1, dtype=torch.long, device=device)
        self.sentences = Sentences(
            places=torch.arange(B, device=device),
            limits=torch.tensor(limits, device=device),
            finished=Outputs.none(B, K, device),
        )
        # At first, each sentence has one hypothesis, which is empty.
        self.scores = torch.full((B, width), -torch.inf, device=device)  # [A, W], best first
        self.scores[:, 0] = 0.0
        self.last = torch.full((B, width), BOS, device=device)  # [A, W], the newest tokens
        self.outputs = Outputs.none(B, 2 * K, device)  # of the sentences that have left
        zeros = torch.zeros((B, steps, K), dtype=torch.long, device=device)
        self.history = History(zeros, zeros.clone(), zeros.float())

    @property
    def reorders(self) -> bool:
        """Whether a row may continue another one, as in all but greedy search."""
        return self.options.beam > 1

    def step(self) -> None:
        """Extend the live hypotheses by a token."""
        self.length += 1
        self.now += 1
        candidates = self.candidates()
        candidates = self.finish(candidates, candidates.tokens == EOS)
        live = candidates.map(lambda tensor: tensor[:, : self.options.beam])
        live = self.leave(live, self.done(live.scores))
        self._advance(live)

    def candidates(self) -> Candidates:
        """The 2 K best continuations of each sentence. At most K of them end, one a row."""
        A, W = self.scores.shape
        K = self.options.beam
        token_scores, tokens = self.best_tokens(K + 1)  # [N, K + 1]
        # A rounding error above 0 would break the bound of exact stopping.
        token_scores = token_scores.clamp(max=0.0)
        scores = self.scores[:, :, None] + token_scores.view(A, W, -1)  # [A, W, K + 1]
        rows = torch.arange(A * W, device=scores.device).view(A, W, 1).expand_as(scores)
        candidates = Candidates(scores, tokens, token_scores, rows)
        return candidates.map(lambda tensor: tensor.reshape(A, -1)).best(2 * K)

    def best_tokens(self, number: int) -> tuple[Tensor, Tensor]:
        """Do a step of the model. Return the best log-probabilities of each row, and their tokens.

        Both are [N, number].
        """
        return topk(self.log_probabilities(), number)

    def log_probabilities(self) -> Tensor:
        """Do a step of the model. Return [N, V], with -inf for tokens that may not be next."""
        log_probabilities, self.state = self.model.step(self.last.flatten(), self.state)
        restrict(log_probabilities, self.length, self.options, self.constraint)
        return log_probabilities

    def finish(self, candidates: Candidates, ends: Tensor) -> Candidates:
        """Do `take_ends` if a candidate `ends` [A, C]."""
        return self.take_ends(candidates, ends) if ends.any() else candidates

    def take_ends(self, candidates: Candidates, ends: Tensor) -> Candidates:
        """Finish the hypotheses whose EOS is among the K best candidates of their sentence.

        Returns:
            The candidates, first those that do not end.
        """
        K, W = self.options.beam, self.scores.size(1)
        first = candidates.map(lambda tensor: tensor[:, :K])
        at_end = ends[:, :K] & ~first.scores.isneginf()
        length = self.now[:, None]
        scores = self.penalty.score(first.scores, length).masked_fill(~at_end, -torch.inf)
        rows = first.rows % W
        lengths = (length - 1).expand_as(rows)
        outputs = Outputs(scores, lengths, rows, end_scores=first.token_scores)
        finished = self.sentences.finished.followed_by(outputs)
        self.sentences.finished = finished.best(K)
        # A hypothesis that is finished must not be cut off later.
        ends_of_rows = torch.zeros_like(self.scores, dtype=torch.long)  # [A, W]
        ends_of_rows = ends_of_rows.scatter_add(1, rows, at_end.long())
        self.scores = self.scores.masked_fill(ends_of_rows > 0, -torch.inf)
        possible = replace(candidates, scores=candidates.scores.masked_fill(ends, -torch.inf))
        order = ends.to(torch.uint8).sort(dim=1, stable=True).indices
        return possible.map(lambda tensor: tensor.gather(1, order))

    def done(self, live: Tensor) -> Tensor:
        """Which sentences [A] are done, given the scores [A, K] of their live hypotheses."""
        best_live = live[:, 0]
        options, limits = self.options, self.sentences.limits
        finished = self.sentences.finished.scores  # [A, K]
        done = best_live.isneginf() | (self.now > limits)
        if options.beam == 1 or (options.early_termination and not options.exact_stopping):
            done |= finished[:, -1] > -torch.inf
        if options.beam > 1 and options.early_termination:
            done |= self.penalty.bound(best_live, limits + 1) <= finished[:, options.nbest - 1]
        return done

    def leave(self, live: Candidates, done: Tensor) -> Candidates:
        """Drop the sentences that are `done` [A]. Return the `live` candidates of the others."""
        check_probabilities(live.scores)
        if not done.any():
            return live
        outputs = self.sentences.finished.followed_by(self.cut_off())
        places = self.sentences.places[done]
        for all_sentences, active_sentences in zip(self.outputs.all(), outputs.all(), strict=True):
            all_sentences[places, : active_sentences.size(1)] = active_sentences[done]
        # The last sentences take the places of those that leave, so that few caches move. Among
        # the first len(active) places, as many become free as active sentences come after them.
        active = (~done).nonzero().flatten()
        rows = torch.arange(len(active), device=done.device)
        rows[done[: len(active)]] = active[active >= len(active)]
        self.sentences = self.sentences.keep(rows)
        return live.map(lambda tensor: tensor[rows])

    def cut_off(self) -> Outputs:
        """The live hypotheses [A, W] as outputs without their end."""
        length = self.now[:, None] - 1
        scores = self.penalty.score(self.scores, length)
        rows = torch.arange(scores.size(1), device=scores.device).expand_as(scores)
        lengths = length.expand_as(rows)
        return Outputs(scores, lengths, rows, end_scores=torch.full_like(scores, torch.nan))

    def _advance(self, live: Candidates) -> None:
        """Make `live` the hypotheses of the sentences that are left."""
        # Else each row continues itself until a sentence leaves.
        if self.reorders or live.rows.shape != self.last.shape:
            self.state = self.state.select(live.rows)
        if self.constraint is not None:
            self.constraint = self.constraint.advance(live.rows.flatten(), live.tokens.flatten())
        if self.length > self.history.tokens.size(1):
            self.history = self.history.map(lambda tensor: F.pad(tensor, (0, 0, 0, self.length)))
        step = History(live.tokens, live.rows % self.scores.size(1), live.token_scores)
        for steps, new in zip(self.history.all(), step.all(), strict=True):
            steps[self.sentences.places, self.now - 1, : new.size(1)] = new
        self.scores, self.last = live.scores, live.tokens


def hypotheses(
    outputs: Outputs, history: History, steps: int, nbest: int
) -> list[list[Hypothesis]]:
    """Return the first `nbest` outputs [B, any] of each sentence after so many `steps`."""
    none_last = outputs.scores.isneginf().to(torch.uint8).sort(dim=1, stable=True).indices
    outputs = outputs.map(lambda tensor: tensor.gather(1, none_last[:, :nbest]).cpu())
    history = history.map(lambda tensor: tensor[:, :steps].cpu())
    # All are traced at once, from the last step to the first. A shorter one waits for its end.
    rows = outputs.rows
    tokens = rows.new_zeros(*rows.shape, steps)  # [B, nbest, L]
    token_scores = tokens.float()
    for step in reversed(range(steps)):
        tokens[:, :, step] = history.tokens[:, step].gather(1, rows)
        token_scores[:, :, step] = history.token_scores[:, step].gather(1, rows)
        before = history.rows[:, step].gather(1, rows)
        rows = torch.where(step < outputs.lengths, before, rows)
    results = []
    for traced in zip(outputs.sentences(), tokens.tolist(), token_scores.tolist(), strict=True):
        of_outputs, *of_tokens = traced
        best = []
        for score, length, _, end_score, ids, scores in zip(*of_outputs, *of_tokens, strict=True):
            if score > -math.inf:
                ends = [] if math.isnan(end_score) else [end_score]
                best.append(Hypothesis(ids[:length], score, scores[:length] + ends))
        results.append(best)
    return results


def check_probabilities(values: Tensor) -> None:
    """Raise CheckpointError if a probability of a model, or its logarithm, is NaN."""
    if values.isnan().any():
        raise CheckpointError(
            "the model's probabilities are not numbers (NaN): its weights are damaged, training "
            "diverged, or float16 overflowed; use an earlier checkpoint or --dtype float32"
        )


def forbidden(length: int, options: SearchSettings) -> list[int]:
    """Return the symbols that may not be at `length`. The first token of an output is at 1."""
    symbols = [PAD, BOS]
    if not options.unknown:
        symbols.append(UNK)
    if length <= options.min_length:
        symbols.append(EOS)
    return symbols


def restrict(
    log_probabilities: Tensor, length: int, options: SearchSettings, constraint: Constraint | None
) -> None:
    """Set `log_probabilities` [N, V] to -inf, in place, for tokens that may not be at `length`."""
    if constraint is not None:
        constraint.restrict(log_probabilities)
    for token in forbidden(length, options):
        log_probabilities[:, token].fill_(-torch.inf)
    if options.never_generated:
        log_probabilities[:, -options.never_generated :].fill_(-torch.inf)
