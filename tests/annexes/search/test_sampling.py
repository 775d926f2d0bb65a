from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from searches import sample
from torch import Tensor

from nmt_cli.annexes.search import sampling as module
from nmt_cli.annexes.search.sampling import draw, uniforms
from nmt_cli.annexes.search.settings import SamplingConfig
from nmt_cli.decoding.beam_search import beam_search
from nmt_cli.decoding.options import SearchSettings
from nmt_cli.errors import CheckpointError
from nmt_cli.interfaces import BOS, EOS, UNK

SOURCES = [[4, 5], [6], [4, 4, 5, 6, 5], [5, 6, 4], [6, 6]]
LINES = [7, 8, 9, 10, 11]


def sampling(**options: Any) -> SamplingConfig:
    return SamplingConfig(sample=True, **options)


def distribution(model: Any, source: Tensor, tokens: list[int]) -> list[float]:
    """The probability of each token after `tokens`, by running the model on this one sequence."""
    state = model.start(source)
    for token in [BOS, *tokens]:
        log_probabilities, state = model.step(torch.tensor([token]), state)
    return log_probabilities[0].double().exp().tolist()


def filtered(
    probabilities: list[float], temperature: float = 1, top_k: int = 10**9, top_p: float = 1
) -> dict[int, float]:
    """The definition, in lists: the share of each token that may be drawn."""
    words = {token: p ** (1 / temperature) for token, p in enumerate(probabilities) if token >= EOS}
    ranked = sorted(words, key=lambda token: -words[token])[:top_k]
    total = sum(words[token] for token in ranked)
    tokens, share = [], 0.0
    while len(tokens) < len(ranked) and share < top_p * total - 1e-12:
        tokens.append(ranked[len(tokens)])
        share += words[tokens[-1]]
    return {token: words[token] / share for token in tokens}


def outcomes(
    model: Any, source: Tensor, limit: int, **options: Any
) -> dict[tuple[int, ...], float]:
    """The probability of each output of at most `limit` tokens."""
    probabilities: dict[tuple[int, ...], float] = {}
    live = {(): 1.0}
    for _ in range(limit + 1):
        following = {}
        for tokens, p in live.items():
            shares = filtered(distribution(model, source, list(tokens)), **options)
            ends = 1.0 if len(tokens) == limit else shares.pop(EOS, 0.0)
            probabilities[tokens] = p * ends
            following.update({(*tokens, token): p * share for token, share in shares.items()})
        live = following
    return {tokens: p for tokens, p in probabilities.items() if p}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"top_k": 3},
        {"top_p": 0.85},
        {"temperature": 0.5},
        {"temperature": 3.0},
        {"temperature": 1.5, "top_k": 4, "top_p": 0.8},
    ],
    ids=str,
)
def test_outputs_are_as_frequent_as_they_are_probable(
    toy: Callable[..., Any], padded: Any, options: dict[str, Any]
) -> None:
    model, source, count = toy(8, 5, 0.4), padded([[4, 5]]), 6000
    expected = outcomes(model, source, 2, **options)
    assert sum(expected.values()) == pytest.approx(1)
    assert len(expected) > 3
    (hypotheses,) = sample(
        model, source, [2], SearchSettings(nbest=count), sampling(**options), [1]
    )
    drawn = Counter(tuple(h.tokens) for h in hypotheses)
    assert drawn.keys() <= expected.keys()
    chi_square = sum(
        (drawn[tokens] - count * p) ** 2 / (count * p) for tokens, p in expected.items()
    )
    freedom = len(expected) - 1
    assert chi_square < freedom + 4 * math.sqrt(2 * freedom)


@pytest.mark.parametrize("share", [None, 0.5, 0.999])
def test_a_large_vocabulary(share: float | None) -> None:
    """More than one block, and for top-p more candidates than are tried first."""
    count = 30_000
    row = torch.randn(700, generator=torch.Generator().manual_seed(1)).softmax(dim=0)
    random = torch.rand((count, 2), generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    options = SamplingConfig() if share is None else sampling(top_p=share)
    drawn = torch.cat(
        [
            draw(row.log()[None], torch.zeros(1000).long(), part, options)
            for part in random.split(1000)
        ]
    )
    shares = filtered([0.0] * EOS + row.tolist(), top_p=share or 1.0)
    expected = torch.tensor([shares.get(token + EOS, 0.0) for token in range(700)]) * count
    counts = drawn.bincount(minlength=700)
    assert not counts[expected == 0].any()
    chi_square = ((counts - expected) ** 2 / expected)[expected > 0].sum().item()
    freedom = len(shares) - 1
    assert abs(chi_square - freedom) < 4 * math.sqrt(2 * freedom)


def test_a_share_that_one_token_has_exactly_needs_no_other() -> None:
    scores = torch.tensor([[0.5, 0.3, 0.2]]).log()
    share = scores.log_softmax(dim=1).double().exp()[0, 0].item()
    random = torch.rand((100, 2), generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    row = torch.zeros(100, dtype=torch.long)
    assert not draw(scores, row, random, sampling(top_p=share)).any()
    assert draw(scores, row, random, sampling(top_p=share + 1e-9)).any()


@settings(max_examples=30)
@given(seed=st.integers(0, 10**6), limit=st.integers(0, 8), sharpness=st.sampled_from([0.3, 2.0]))
def test_top_k_1_is_greedy_search(
    toy: Callable[..., Any], padded: Any, seed: int, limit: int, sharpness: float
) -> None:
    model, limits = toy(9, seed, sharpness), [limit] * 5
    greedy = beam_search(model, padded(SOURCES), limits, SearchSettings(beam=1))
    for options in ({"top_k": 1}, {"top_p": 0.001}):
        samples = sample(
            model, padded(SOURCES), limits, SearchSettings(), sampling(**options), LINES
        )
        for (h,), (expected,) in zip(samples, greedy, strict=True):
            assert h.tokens == expected.tokens
            assert h.token_scores == pytest.approx(expected.token_scores, abs=1e-5)
            assert h.score == pytest.approx(expected.score, abs=1e-5)


@settings(max_examples=30)
@given(
    seed=st.integers(0, 10**6),
    n=st.integers(1, 4),
    extra=st.integers(0, 3),
    order=st.permutations(range(5)),
    options=st.sampled_from([{}, {"top_k": 3}, {"top_p": 0.8, "temperature": 2.0}]),
)
def test_a_line_has_the_same_samples_alone_and_in_any_batch(
    toy: Callable[..., Any],
    padded: Any,
    seed: int,
    n: int,
    extra: int,
    order: list[int],
    options: dict[str, Any],
) -> None:
    model, search, limits = toy(9, seed), SearchSettings(nbest=n), [3, 9, 4, 12, 1]
    alone = [
        sample(model, padded([row]), [limit], search, sampling(**options), [line])[0]
        for row, limit, line in zip(SOURCES, limits, LINES, strict=True)
    ]
    rows, lines = [SOURCES[i] for i in order], [LINES[i] for i in order]
    shuffled = [limits[i] for i in order]
    together = sample(model, padded(rows, extra), shuffled, search, sampling(**options), lines)
    assert [[h.tokens for h in s] for s in together] == [
        [h.tokens for h in alone[i]] for i in order
    ]
    first = sample(model, padded(rows), shuffled, SearchSettings(), sampling(**options), lines)
    assert [s[0].tokens for s in first] == [s[0].tokens for s in together]


def test_many_samples_are_drawn_some_at_a_time(
    toy: Callable[..., Any], padded: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A decoder's state grows with the square of its hypotheses.

    The samples are the same as from one large state.
    """
    model, search, limits = toy(9, 1), SearchSettings(nbest=150), [3, 9, 4, 12, 1]
    some = sample(model, padded(SOURCES), limits, search, sampling(), LINES)
    assert max(model.rows_seen) == 5 * 64
    monkeypatch.setattr(module, "AT_A_TIME", 150)
    together = sample(model, padded(SOURCES), limits, search, sampling(), LINES)
    assert max(model.rows_seen) == 5 * 150
    assert [[h.tokens for h in line] for line in some] == [
        [h.tokens for h in line] for line in together
    ]


def test_seeds_lines_and_samples_have_numbers_of_their_own() -> None:
    keys = [(1, 1, 0), (2, 1, 0), (1, 2, 0), (1, 1, 1), (2**40, 1, 0)]
    drawn = [tuple(uniforms(*key, 5).flat) for key in keys]
    assert len(set(drawn)) == len(keys)
    assert drawn == [tuple(uniforms(*key, 5).flat) for key in keys]
    assert tuple(uniforms(1, 1, 0, 9)[:5].flat) == drawn[0]


@settings(max_examples=30)
@given(
    seed=st.integers(0, 10**6),
    n=st.integers(1, 4),
    limit=st.integers(0, 8),
    alpha=st.sampled_from([0.0, 0.6]),
)
def test_scores_are_those_of_the_model(
    toy: Callable[..., Any], padded: Any, seed: int, n: int, limit: int, alpha: float
) -> None:
    model = toy(8, seed, 1.0)
    options = sampling(temperature=2.0, top_k=3)
    results = sample(
        model, padded(SOURCES), [limit] * 5, SearchSettings(nbest=n, alpha=alpha), options, LINES
    )
    for source, hypotheses in zip(SOURCES, results, strict=True):
        assert len(hypotheses) == n
        for h in hypotheses:
            ended = len(h.token_scores) == len(h.tokens) + 1
            assert ended or len(h.tokens) == limit
            tokens = [*h.tokens, EOS] if ended else h.tokens
            model_scores = [
                math.log(distribution(model, padded([source]), tokens[:k])[token])
                for k, token in enumerate(tokens)
            ]
            assert h.token_scores == pytest.approx(model_scores, abs=1e-4)
            assert h.score == pytest.approx(
                sum(model_scores) / ((5 + len(tokens)) / 6) ** alpha, abs=1e-4
            )


def test_min_length_and_the_tokens_that_are_never_drawn(
    toy: Callable[..., Any], padded: Any
) -> None:
    model = toy(7, 2, 0.2)
    options = SearchSettings(nbest=50, min_length=3)
    for how, unknown in [
        (options, False),
        (SearchSettings(nbest=50, min_length=3, unknown=True), True),
    ]:
        results = sample(model, padded(SOURCES), [5] * 5, how, sampling(), LINES)
        drawn = [h.tokens for s in results for h in s]
        assert min(map(len, drawn)) == 3
        assert max(map(len, drawn)) == 5
        words = {token for tokens in drawn for token in tokens}
        assert words == ({UNK, 4, 5, 6} if unknown else {4, 5, 6})


def test_a_sentence_leaves_the_batch_with_its_last_sample(
    toy: Callable[..., Any], padded: Any
) -> None:
    model = toy(9, 1)
    model.rows_seen.clear()
    drawn_samples = sample(
        model, padded(SOURCES[:2]), [9, 9], SearchSettings(nbest=5), sampling(), LINES[:2]
    )
    longest = [max(min(len(h.tokens) + 1, 10) for h in samples) for samples in drawn_samples]
    expected = [5 * sum(length > step for length in longest) for step in range(1, max(longest))]
    assert model.rows_seen == [2, *expected]


def test_a_sample_without_an_allowed_token_is_cut(padded: Any, toy: Callable[..., Any]) -> None:
    class Dead:
        def __init__(self, length: int = 0) -> None:
            self.length = length

        def restrict(self, scores: Tensor) -> None:
            scores[:, EOS if self.length < 2 else slice(None)] = -torch.inf

        def advance(self, rows: Tensor, tokens: Tensor) -> Dead:
            return Dead(self.length + 1)

    for options in ({}, {"top_k": 3}, {"top_p": 0.5}):
        (hypotheses,) = sample(
            toy(9, 1), padded([[4]]), [9], SearchSettings(nbest=3), sampling(**options), [1], Dead()
        )
        assert [(len(h.tokens), len(h.token_scores)) for h in hypotheses] == [(2, 2)] * 3


def test_impossible_tokens_are_not_drawn_at_either_end_of_the_interval() -> None:
    scores = torch.tensor([[-torch.inf, -1.0, -torch.inf, -2.0, -torch.inf]] * 2)
    ends = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
    for options in ({}, {"top_k": 5}, {"top_p": 1.0}, {"top_k": 4, "top_p": 1.0}):
        assert draw(scores, torch.arange(2), ends, sampling(**options)).tolist() == [1, 3]


def test_nan_probabilities_are_an_error(toy: Callable[..., Any], padded: Any) -> None:
    broken = toy(8, 0)
    broken.output *= math.nan
    for limit in (0, 5):
        with pytest.raises(CheckpointError, match="not numbers"):
            sample(broken, padded([[4]]), [limit], SearchSettings(), sampling(), [1])
