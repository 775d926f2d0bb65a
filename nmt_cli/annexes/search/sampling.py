"""Outputs drawn at random from a model's distribution, for any `Decodable`.

Letters are as in `beam_search.py`, with n samples of a sentence in place of K hypotheses, and
    M: draws.
    C: candidates.

The random numbers of a sample depend on the seed, the number of its line and its own number only,
so the other lines of a batch do not change an output.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nmt_cli.annexes.search.settings import SamplingConfig
from nmt_cli.decoding.beam_search import Candidates, Outputs, Search, hypotheses
from nmt_cli.decoding.choice import drawn, topk
from nmt_cli.decoding.engine import Request
from nmt_cli.decoding.options import SearchOptions, SearchSettings
from nmt_cli.errors import UsageError
from nmt_cli.interfaces import Constraint, Decodable, Hypothesis

DEFAULT_SEED = 1
# Samples of a sentence at a time. The memory and time that a state of the decoder needs grow with
# their square.
AT_A_TIME = 64

_NUCLEUS = 64  # candidates that are tried first for top-p, enough for most distributions


def sampling(
    config: SamplingConfig, *, settings: SearchSettings, options: SearchOptions
) -> SearchSettings:
    """Return the settings of a search that draws outputs.

    Raises:
        UsageError: there is a beam.
    """
    if options.beam is not None:
        raise UsageError(
            "--sample cannot be used with --beam: it draws outputs and does not search"
        )
    settings = replace(settings, beam=min(settings.nbest, AT_A_TIME), run=partial(sample, config))
    # The number of candidates of top-p differs.
    if config.top_p is None and settings.nbest <= AT_A_TIME:
        settings = replace(settings, steps=Draws.of(config, range(settings.nbest)))
    return settings


@torch.inference_mode()
def sample(
    sampling: SamplingConfig,
    model: Decodable,
    source: Tensor,
    requests: Sequence[Request],
    search: SearchSettings,
    constraint: Constraint | None = None,
) -> list[list[Hypothesis]]:
    """Return `search.nbest` independent samples of each request, in the order of their numbers.

    A sample ends with EOS. It is cut at its limit, or where the constraint allows no token. Then
    its `token_scores` have no entry for EOS. Scores are the model's, as in beam search, before
    temperature, top-k and top-p.

    Args:
        source: [B, S], padded, each row ends in EOS.
        requests: B, of which the limits and the numbers count.
        constraint: the tokens that are allowed next, for B rows.

    Raises:
        CheckpointError: the model's probabilities are NaN.
    """
    samples: list[list[Hypothesis]] = [[] for _ in requests]
    limits = [request.limit for request in requests]
    for first in range(0, search.nbest, AT_A_TIME):
        draws = Draws.of(sampling, range(first, min(first + AT_A_TIME, search.nbest)))
        count = len(draws.numbers)
        options = replace(search, beam=count, steps=draws)
        state = model.start(source)
        sampler = Sampler(model, state, limits, options, constraint, device=source.device)
        sampler.inputs = draws.inputs(requests, max(limits) + 1).to(source.device)
        while len(sampler.sentences.places):
            sampler.step()
        outputs = hypotheses(sampler.outputs, sampler.history, sampler.length, count)
        for of_sentence, new in zip(samples, outputs, strict=True):
            of_sentence += new
    return samples


@dataclass(frozen=True)
class Draws:
    """The steps of sampling: see `Steps`."""

    config: SamplingConfig  # without seed
    numbers: range  # of the samples of each sentence
    seed: int = field(compare=False)  # the steps are the same

    @classmethod
    def of(cls, config: SamplingConfig, numbers: range) -> Draws:
        seed = DEFAULT_SEED if config.seed is None else config.seed
        return cls(replace(config, seed=None), numbers, seed)

    @property
    def search(self) -> type[Search]:
        """See `Steps`."""
        return Sampler

    def inputs(self, requests: Sequence[Request], steps: int) -> Tensor:
        """Return random numbers [B, steps, n, 2] of [0, 1), two for each token."""
        random = np.zeros((len(requests), steps, len(self.numbers), 2))
        for row, request in zip(random, requests, strict=True):
            most = request.limit + 1  # L + 1 tokens with EOS
            for sample, number in enumerate(self.numbers):
                row[:most, sample] = uniforms(self.seed, request.number, number, most)
        return torch.from_numpy(random)


def uniforms(seed: int, line: int, number: int, count: int) -> NDArray[np.float64]:
    """Return [count, 2] numbers of [0, 1), two for each token of sample `number` of a line."""
    key = np.random.SeedSequence(seed, spawn_key=(line, number))
    return np.random.Generator(np.random.Philox(key)).random((count, 2))


def draw(scores: Tensor, rows: Tensor, random: Tensor, options: SamplingConfig) -> Tensor:
    """Return a token [M] for each of `rows` [M], drawn with its two numbers of `random` [M, 2].

    The order is temperature, top-k, top-p. The probabilities of what is left are normalised again.

    Args:
        scores: log-probabilities [N, V], which need not be normalised. -inf is never drawn.
    """
    columns = None  # [N, C], the tokens of `scores`, if these are not all tokens
    if options.temperature is not None:
        scores = scores / options.temperature
    if options.top_k is not None:
        scores, columns = topk(scores, options.top_k)
    if options.top_p is not None:
        scores, places = _nucleus(scores.log_softmax(dim=1), options.top_p)
        columns = places if columns is None else columns.gather(1, places)
    column = drawn(scores.softmax(dim=1), rows, random)
    if columns is None:
        return column
    return columns[rows, column]


def _nucleus(scores: Tensor, share: float) -> tuple[Tensor, Tensor]:
    """The most probable tokens, best first, until their probabilities sum to `share`.

    Holtzman et al. 2020, section 3.1.

    Returns:
        Log-probabilities [N, C], -inf after the sum, and columns [N, C].
    """
    size = _NUCLEUS
    while True:
        best, columns = topk(scores, size)
        sums = best.double().exp().cumsum(dim=1)
        # The sum is NaN in a row without a possible token. More candidates would not help it.
        too_few = (sums[:, -1] < share).any()
        if size >= scores.shape[1] or not too_few:
            break
        size *= 8
    before = sums - best.double().exp()
    return best.masked_fill(before >= share, -torch.inf), columns


class Sampler(Search):
    """The samples of a batch. Each continues itself, and its output has a place of its own."""

    inputs: Tensor  # [B, at least L, n, 2]: random numbers
    reorders = False

    def candidates(self) -> Candidates:
        """Draw the next token of each sample: all [A, n]."""
        # At first, all samples of a sentence continue its empty hypothesis.
        self.scores = torch.where(self.now[:, None] == 1, self.scores[:, :1], self.scores)
        A, W = self.scores.shape
        log_probabilities = self.log_probabilities()  # [N, V]
        rows = torch.arange(A * W, device=self.scores.device).view(A, W)
        rows = rows.expand(A, self.options.beam)
        random = self.inputs[self.sentences.places, self.now - 1]  # [A, n, 2]
        tokens = draw(
            log_probabilities, rows.flatten(), random.flatten(0, 1), self.options.steps.config
        )
        tokens = tokens.view_as(rows)
        token_scores = log_probabilities[rows, tokens]
        # NaN stays, and where no token is allowed, any has been drawn.
        best = log_probabilities.amax(dim=1)[rows]
        token_scores = torch.where(best.isfinite(), token_scores, best)
        return Candidates(self.scores + token_scores, tokens, token_scores, rows)

    def finish(self, candidates: Candidates, ends: Tensor) -> Candidates:
        """See `Search`. Samples end at their limit, too."""
        return self.take_ends(candidates, ends)

    def take_ends(self, candidates: Candidates, ends: Tensor) -> Candidates:
        """Finish the samples that draw EOS, are at their limit, or have no token.

        Returns:
            The candidates, in the same order.
        """
        length = self.now[:, None]
        at_end = ends & ~candidates.scores.isneginf()
        stops = ends | candidates.scores.isneginf() | (length > self.sentences.limits[:, None])
        stops &= ~self.scores.isneginf() & ~candidates.scores.isnan()
        scores = torch.where(at_end, candidates.scores, self.scores)
        numbers = torch.arange(self.options.beam, device=ends.device)
        outputs = Outputs(
            self.penalty.score(scores, length - 1 + at_end.long()),
            lengths=(length - 1).expand_as(ends),
            rows=numbers.expand_as(ends),
            end_scores=candidates.token_scores.masked_fill(~at_end, torch.nan),
        )
        pairs = zip(outputs.all(), self.sentences.finished.all(), strict=True)
        self.sentences.finished = Outputs(*(torch.where(stops, new, old) for new, old in pairs))
        scores = candidates.scores.masked_fill(stops, -torch.inf)
        # Nothing is left to be cut off.
        self.scores = self.scores.masked_fill(self.done(scores)[:, None], -torch.inf)
        return replace(candidates, scores=scores)

    def done(self, live: Tensor) -> Tensor:
        """See `Search`."""
        return live.isneginf().all(dim=1)
