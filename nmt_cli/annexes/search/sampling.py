"""Outputs drawn at random from a model's distribution, for any `Decodable`.

Letters:
    B: sentences. A of them are not at their end.
    n: samples of a sentence, M = B * n in all.
    N: rows of the state.
    L: the length limit.
    V: vocabulary.
    C: candidates.

The random numbers of a sample depend on the seed, the number of its line and its own number only,
so the other lines of a batch do not change an output.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nmt_cli.annexes.search.settings import SamplingConfig
from nmt_cli.decoding.beam_search import check_probabilities, restrict
from nmt_cli.decoding.choice import drawn, topk
from nmt_cli.decoding.engine import Request
from nmt_cli.decoding.length_penalty import LengthPenalty
from nmt_cli.decoding.options import SearchOptions, SearchSettings
from nmt_cli.errors import UsageError
from nmt_cli.interfaces import BOS, EOS, Constraint, Decodable, Hypothesis

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
    return replace(settings, beam=min(settings.nbest, AT_A_TIME), run=partial(sample, config))


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
    for first in range(0, search.nbest, AT_A_TIME):
        numbers = range(first, min(first + AT_A_TIME, search.nbest))
        sampler = _Sampler(sampling, model, source, requests, search, constraint, numbers)
        while len(sampler.live):
            sampler.step()
        hypotheses = iter(sampler.hypotheses())
        for of_sentence in samples:
            of_sentence += itertools.islice(hypotheses, len(numbers))
    return samples


def uniforms(seed: int, line: int, number: int, count: int) -> NDArray[np.float64]:
    """Return [count, 2] numbers of [0, 1), two for each token of sample `number` of a line."""
    key = np.random.SeedSequence(seed, spawn_key=(line, number))
    return np.random.Generator(np.random.Philox(key)).random((count, 2))


def draw(scores: Tensor, random: Tensor, options: SamplingConfig) -> Tensor:
    """Return a token [N] for each row, drawn with its two numbers of `random` [N, 2].

    The order is temperature, top-k, top-p. The probabilities of what is left are normalised again.

    Args:
        scores: log-probabilities [N, V], which need not be normalised. -inf is never drawn.
    """
    columns = None  # [N, C], the tokens of `scores`, if these are not all tokens
    scores = (scores / (options.temperature or 1.0)).log_softmax(dim=1)
    if options.top_k is not None:
        scores, columns = topk(scores, options.top_k)
        scores = scores.log_softmax(dim=1)
    if options.top_p is not None:
        scores, places = _nucleus(scores, options.top_p)
        columns = places if columns is None else columns.gather(1, places)
    rows = torch.arange(len(scores), device=scores.device)
    place = drawn(scores.exp(), rows, random)
    if columns is None:
        return place
    return columns.gather(1, place.unsqueeze(1)).squeeze(1)


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


class _Sampler:
    """The samples of these numbers of one batch.

    A sentence leaves the batch when all of its samples have ended.
    """

    def __init__(
        self,
        sampling: SamplingConfig,
        model: Decodable,
        source: Tensor,
        requests: Sequence[Request],
        search: SearchSettings,
        constraint: Constraint | None,
        numbers: range,
    ) -> None:
        B, n, device = len(source), len(numbers), source.device
        M = B * n
        seed = DEFAULT_SEED if sampling.seed is None else sampling.seed
        limits = torch.tensor([request.limit for request in requests], device=device)
        most = max(request.limit for request in requests) + 1  # L + 1 tokens with EOS
        random = []
        for request in requests:
            for number in numbers:
                random.append(uniforms(seed, request.number, number, most))
        self.model, self.search, self.sampling = model, search, sampling
        self.constraint = constraint
        self.state = model.start(source)
        # At first, the samples of a sentence share a row of the state.
        self.last = torch.full((B,), BOS, device=device)  # [N]
        self.live = torch.arange(M, device=device).view(B, n)  # [A, n], of M
        self.rows = torch.arange(B, device=device).unsqueeze(1).expand(B, n)  # [A, n], of N
        self.limits = limits.repeat_interleave(n)  # [M]
        self.random = torch.from_numpy(np.stack(random)).to(device)  # [M, L + 1, 2]
        self.tokens = torch.zeros((M, most), dtype=torch.long, device=device)  # [M, L + 1]
        self.token_scores = torch.zeros((M, most), device=device)  # [M, L + 1]
        self.lengths = torch.zeros_like(self.limits)  # [M], EOS included
        self.ended = torch.zeros_like(self.limits, dtype=torch.bool)  # [M]
        self.length = 0

    def step(self) -> None:
        """Draw the next token of every sample, and drop the sentences whose samples have ended."""
        log_probabilities, self.state = self.model.step(self.last, self.state)  # [N, V]
        check_probabilities(log_probabilities)
        allowed = log_probabilities.clone()
        restrict(allowed, self.length + 1, self.search, self.constraint)
        rows, samples = self.rows.flatten(), self.live.flatten()
        possible = ~allowed.isneginf().all(dim=1)[rows]
        tokens = draw(allowed[rows], self.random[samples, self.length], self.sampling)
        self.length += 1
        ends = possible & (tokens == EOS)
        is_cut = ~possible | ~ends & (self.length > self.limits[samples])
        is_longer = ~is_cut & ~self.ended[samples]
        longer = samples[is_longer]
        self.tokens[longer, self.length - 1] = tokens[is_longer]
        self.token_scores[longer, self.length - 1] = log_probabilities[rows, tokens][is_longer]
        self.lengths[longer] = self.length
        self.ended[samples] |= ends | is_cut
        active = ~self.ended[self.live].all(dim=1)
        self._advance(tokens.view_as(self.live), active)

    def hypotheses(self) -> list[Hypothesis]:
        """The M samples."""
        penalty = self.search.penalty or LengthPenalty(self.search.alpha)
        scores = penalty.score(self.token_scores.sum(dim=1), self.lengths.float())
        samples = zip(
            self.lengths.tolist(),
            self.tokens.tolist(),
            scores.tolist(),
            self.token_scores.tolist(),
            strict=True,
        )
        hypotheses = []
        for length, tokens, score, token_scores in samples:
            without_end = [token for token in tokens[:length] if token != EOS]
            hypotheses.append(Hypothesis(without_end, score, token_scores[:length]))
        return hypotheses

    def _advance(self, tokens: Tensor, active: Tensor) -> None:
        """Keep the sentences that are `active` [A], after `tokens` [A, n]."""
        rows = self.rows[active]
        self.live = self.live[active]
        self.last = tokens[active].flatten()
        self.rows = torch.arange(rows.numel(), device=rows.device).view_as(rows)
        if not len(rows):
            return
        # Each row continues itself, but after the first token and where a sentence leaves.
        if self.length == 1 or not active.all():
            self.state = self.state.select(rows)
        if self.constraint is not None:
            self.constraint = self.constraint.advance(rows.flatten(), self.last)
