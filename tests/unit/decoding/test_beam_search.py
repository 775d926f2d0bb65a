from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from stepping import token_log_probabilities
from torch import Tensor

from nmt_cli.decoding.beam_search import beam_search
from nmt_cli.decoding.length_penalty import LengthPenalty
from nmt_cli.decoding.options import SearchSettings
from nmt_cli.errors import CheckpointError
from nmt_cli.interfaces import BOS, EOS, PAD, UNK, Constraint, Hypothesis

seeds = st.integers(0, 10**6)
alphas = st.sampled_from([0.0, 0.3, 0.6, 1.0, 2.0])
SOURCES = [[4, 5], [6], [4, 4, 5, 6, 5], [5, 6, 4], [6, 6]]


def penalty(length: int, alpha: float) -> float:
    return math.pow((5 + length) / 6, alpha)


def greedy(model: Any, source: Tensor, limit: int) -> tuple[list[int], list[float]]:
    """The likeliest token at each step, until that is EOS or the limit is reached."""
    state, tokens, scores = model.start(source), [], []
    last = BOS
    while True:
        log_probabilities, state = model.step(torch.tensor([last]), state)
        log_probabilities[0, [PAD, UNK, BOS]] = -torch.inf
        last = int(log_probabilities[0].argmax())
        if last == EOS:
            return tokens, [*scores, log_probabilities[0, EOS].item()]
        if len(tokens) == limit:
            return tokens, scores
        tokens.append(last)
        scores.append(log_probabilities[0, last].item())


def plain_beam_search(
    model: Any, source: Tensor, limit: int, beam: int, alpha: float, exact: bool
) -> list[tuple[float, list[int]]]:
    """The definition in lists: the best `beam` without an end stay, and ends among them count."""
    live: list[tuple[float, list[int]]] = [(0.0, [])]
    ended = []
    for length in range(1, limit + 2):
        continuations = []
        for log_p, tokens in live:
            state, log_probabilities = model.start(source), torch.zeros(1)
            for token in [BOS, *tokens]:
                log_probabilities, state = model.step(torch.tensor([token]), state)
            row = log_probabilities[0].tolist()
            continuations += [
                (log_p + row[token], tokens, token) for token in range(EOS, model.vocabulary_size)
            ]
        continuations.sort(key=lambda c: c[0], reverse=True)
        ended += [
            (c[0] / penalty(length, alpha), c[1]) for c in continuations[:beam] if c[2] == EOS
        ]
        live = [
            (log_p, [*tokens, token]) for log_p, tokens, token in continuations if token != EOS
        ][:beam]
        if len(ended) >= beam and not exact:
            break
    return sorted(ended, reverse=True)


def approximately(left: list[list[Hypothesis]], right: list[list[Hypothesis]]) -> bool:
    return [[h.tokens for h in s] for s in left] == [[h.tokens for h in s] for s in right] and all(
        math.isclose(a.score, b.score, rel_tol=1e-5, abs_tol=1e-6)
        for x, y in zip(left, right, strict=True)
        for a, b in zip(x, y, strict=True)
    )


@settings(max_examples=40)
@given(seed=seeds, alpha=alphas, beam=st.integers(2, 6), limit=st.integers(1, 6), data=st.data())
def test_agrees_with_the_definition(
    toy: Callable[..., Any],
    padded: Any,
    seed: int,
    alpha: float,
    beam: int,
    limit: int,
    data: st.DataObject,
) -> None:
    exact, nbest = data.draw(st.booleans()), data.draw(st.integers(1, beam))
    model, source = toy(8, seed, 1.0), padded([[4, 7]])
    expected = plain_beam_search(model, source, limit, beam, alpha, exact)[:nbest]
    options = SearchSettings(beam, alpha, nbest, exact_stopping=exact)
    (hypotheses,) = beam_search(model, source, [limit], options)
    ended = [h for h in hypotheses if len(h.token_scores) > len(h.tokens)]
    assert [h.tokens for h in ended] == [tokens for _, tokens in expected]
    assert [h.score for h in ended] == pytest.approx([score for score, _ in expected], abs=1e-5)


@settings(max_examples=60)
@given(
    seed=seeds, alpha=alphas, limit=st.integers(0, 12), sharpness=st.sampled_from([0.3, 2.0, 6.0])
)
def test_a_beam_of_one_is_greedy_search(
    toy: Callable[..., Any], padded: Any, seed: int, alpha: float, limit: int, sharpness: float
) -> None:
    model = toy(9, seed, sharpness)
    results = beam_search(
        model, padded(SOURCES), [limit] * len(SOURCES), SearchSettings(beam=1, alpha=alpha)
    )
    for source, (hypotheses,) in zip(SOURCES, results, strict=True):
        tokens, scores = greedy(model, padded([source]), limit)
        assert hypotheses.tokens == tokens
        assert hypotheses.token_scores == pytest.approx(scores, abs=1e-6)


@settings(max_examples=60)
@given(seed=seeds, alpha=alphas, beam=st.integers(2, 6), data=st.data())
def test_exact_stopping_changes_no_result(
    toy: Callable[..., Any], padded: Any, seed: int, alpha: float, beam: int, data: st.DataObject
) -> None:
    nbest = data.draw(st.integers(1, beam))
    limits = data.draw(st.lists(st.integers(0, 15), min_size=len(SOURCES), max_size=len(SOURCES)))
    model = toy(8, seed)
    options = SearchSettings(beam, alpha, nbest, exact_stopping=True)
    early = beam_search(model, padded(SOURCES), limits, options)
    full = beam_search(model, padded(SOURCES), limits, replace(options, early_termination=False))
    assert early == full


@dataclass(frozen=True)
class Reward(LengthPenalty):
    reward: float = 0.0

    def score(self, log_probability: Tensor, length: Tensor) -> Tensor:
        return log_probability + self.reward * length


@settings(max_examples=40)
@given(
    seed=seeds,
    reward=st.sampled_from([0.0, 0.5, 5.0]),
    beam=st.integers(2, 5),
    limit=st.integers(0, 10),
)
def test_another_length_penalty_has_its_scores_and_its_bound(
    toy: Callable[..., Any], padded: Any, seed: int, reward: float, beam: int, limit: int
) -> None:
    model, penalty = toy(8, seed), Reward(0.6, reward)
    options = SearchSettings(beam, nbest=2, penalty=penalty, exact_stopping=True)
    results_of_lines = beam_search(model, padded(SOURCES), [limit] * 5, options)
    for hypothesis in chain(*results_of_lines):
        expected = sum(hypothesis.token_scores) + reward * len(hypothesis.token_scores)
        assert hypothesis.score == pytest.approx(expected, abs=1e-4)
    assert results_of_lines == beam_search(
        model, padded(SOURCES), [limit] * 5, replace(options, early_termination=False)
    )


def test_early_termination_saves_steps(toy: Callable[..., Any], padded: Any) -> None:
    model = toy(8, 3)
    steps = []
    for options in (
        SearchSettings(),
        SearchSettings(exact_stopping=True),
        SearchSettings(early_termination=False),
    ):
        model.rows_seen.clear()
        beam_search(model, padded(SOURCES), [60] * 5, options)
        steps.append(len(model.rows_seen))
    assert steps[0] < steps[1] < steps[2] == 61


def test_finished_sentences_leave_the_batch_and_the_first_step_has_one_row_each(
    toy: Callable[..., Any], padded: Any
) -> None:
    model = toy(30, 1)
    beam_search(
        model, padded(SOURCES), [2, 4, 6, 8, 10], SearchSettings(beam=4, early_termination=False)
    )
    five_four_and_so_on = [5, 20, 20, 16, 16, 12, 12, 8, 8, 4, 4]
    assert model.rows_seen == five_four_and_so_on


@settings(max_examples=40)
@given(
    seed=seeds,
    beam=st.integers(1, 5),
    extra=st.integers(0, 3),
    order=st.permutations(range(len(SOURCES))),
)
def test_batch_order_composition_and_padding_change_nothing(
    toy: Callable[..., Any], padded: Any, seed: int, beam: int, extra: int, order: list[int]
) -> None:
    model = toy(9, seed)
    options = SearchSettings(beam=beam, nbest=beam)
    limits = [3, 9, 4, 20, 1]
    alone = [
        beam_search(model, padded([s]), [n], options)[0]
        for s, n in zip(SOURCES, limits, strict=True)
    ]
    rows, shuffled_limits = [SOURCES[i] for i in order], [limits[i] for i in order]
    together = beam_search(model, padded(rows, extra), shuffled_limits, options)
    assert approximately(together, [alone[i] for i in order])


@settings(max_examples=40)
@given(seed=seeds, alpha=alphas, beam=st.integers(1, 5), limit=st.integers(0, 10))
def test_scores_are_those_of_the_sequences_themselves(
    toy: Callable[..., Any], padded: Any, seed: int, alpha: float, beam: int, limit: int
) -> None:
    model = toy(8, seed, 1.0)
    results = beam_search(
        model, padded(SOURCES), [limit] * 5, SearchSettings(beam, alpha, nbest=beam)
    )
    for source, hypotheses in zip(SOURCES, results, strict=True):
        assert 1 <= len(hypotheses) <= beam
        for h in hypotheses:
            ended = len(h.token_scores) == len(h.tokens) + 1
            assert ended or len(h.tokens) == limit
            assert not {PAD, UNK, BOS, EOS} & set(h.tokens)
            tokens = [*h.tokens, EOS] if ended else h.tokens
            expected = token_log_probabilities(model, padded([source]), tokens)
            assert h.token_scores == pytest.approx(expected, abs=1e-6)
            assert h.score == pytest.approx(sum(expected) / penalty(len(tokens), alpha), abs=1e-5)
        ended_scores = [h.score for h in hypotheses if len(h.token_scores) > len(h.tokens)]
        assert ended_scores == sorted(ended_scores, reverse=True)


class Uniform:
    """A model in which all tokens are equally likely."""

    def __init__(
        self, vocabulary_size: int, log_probabilities: dict[int, float] | None = None
    ) -> None:
        self.vocabulary_size = vocabulary_size
        self.row = torch.full((vocabulary_size,), -math.log(vocabulary_size))
        for token, value in (log_probabilities or {}).items():
            self.row[token] = value

    def start(self, source: Tensor) -> Uniform:
        return self

    def select(self, rows: Tensor) -> Uniform:
        return self

    def step(self, tokens: Tensor, state: Uniform) -> tuple[Tensor, Uniform]:
        return self.row.repeat(len(tokens), 1), self


def test_a_hypothesis_at_its_limit_may_still_win_by_the_length_of_its_end(padded: Any) -> None:
    """The empty output is likelier. |Y| counts EOS, so one token has the length 2, which wins."""

    class AfterFiveTheEnd(Uniform):
        def step(self, tokens: Tensor, state: Uniform) -> tuple[Tensor, Uniform]:
            return torch.where(
                tokens[:, None] == BOS, self.row, torch.eye(self.vocabulary_size)[EOS].log()
            ), self

    first = {**dict.fromkeys(range(6), -torch.inf), EOS: math.log(0.505), 5: math.log(0.495)}
    ((best,),) = beam_search(
        AfterFiveTheEnd(6, first), padded([[4]]), [1], SearchSettings(beam=2, alpha=1.0)
    )
    assert best.tokens == [5]
    assert best.score == pytest.approx(math.log(0.495) / penalty(2, 1.0))


def test_equal_scores_are_resolved_by_the_earlier_end_and_alike_in_every_batch(padded: Any) -> None:
    options = SearchSettings(beam=3, alpha=0.0, nbest=3)
    (alone,) = beam_search(Uniform(500), padded([[4]]), [2], options)
    assert [len(h.tokens) for h in alone] == [0, 1, 2]
    assert beam_search(Uniform(500), padded([[4]] * 5), [2] * 5, options) == [alone] * 5


def test_hypotheses_at_the_limit_are_cut_and_kept(padded: Any) -> None:
    endless = Uniform(8, {EOS: -torch.inf, 4: -1.0, 5: -1.5})
    results = beam_search(endless, padded([[4], [5]]), [3, 0], SearchSettings(beam=2, nbest=2))
    assert [[h.tokens for h in r] for r in results] == [[[4, 4, 4], [4, 4, 5]], [[]]]
    assert len(results[0][0].token_scores) == 3
    assert results[0][0].score == pytest.approx(3 * -1.0 / penalty(3, 0.6))


def test_finished_hypotheses_precede_cut_ones_of_better_scores(padded: Any) -> None:
    looping = Uniform(8, {**dict.fromkeys(range(8), -20.0), 4: -1e-6, EOS: -5.0})
    (hypotheses,) = beam_search(looping, padded([[4]]), [30], SearchSettings(beam=2, nbest=2))
    assert all(len(h.token_scores) == len(h.tokens) + 1 for h in hypotheses)


def test_min_length(toy: Callable[..., Any], padded: Any) -> None:
    quick = Uniform(8, {EOS: -0.001})
    (hypotheses,) = beam_search(quick, padded([[4]]), [9], SearchSettings(min_length=3))
    assert len(hypotheses[0].tokens) == 3


def test_padding_and_begin_are_never_generated_and_the_unknown_word_only_if_wanted(
    padded: Any,
) -> None:
    model = Uniform(8, {PAD: -0.1, BOS: -0.1, UNK: -0.2, EOS: -9.0})
    assert beam_search(model, padded([[4]]), [2], SearchSettings())[0][0].tokens == [4, 4]
    assert beam_search(model, padded([[4]]), [2], SearchSettings(unknown=True))[0][0].tokens == [
        UNK,
        UNK,
    ]


def test_a_row_has_enough_candidates_when_its_likeliest_tokens_are_no_words(padded: Any) -> None:
    class AfterFiveTheEnd(Uniform):
        def step(self, tokens: Tensor, state: Uniform) -> tuple[Tensor, Uniform]:
            rows = self.row.repeat(len(tokens), 1)
            rows[tokens == 5, EOS] = -0.001
            return rows, self

    likeliest = {PAD: -0.1, BOS: -0.1, UNK: -0.1, EOS: -0.2, 4: -3.0, 5: -3.1}
    model = AfterFiveTheEnd(8, {**dict.fromkeys(range(8), -9.0), **likeliest})
    (hypotheses,) = beam_search(
        model, padded([[4]]), [1], SearchSettings(beam=2, alpha=0.0, nbest=2)
    )
    assert [h.tokens for h in hypotheses] == [[], [5]]


def test_the_smallest_vocabulary_gives_the_empty_output(padded: Any) -> None:
    ((only,),) = beam_search(
        Uniform(EOS + 1), padded([[UNK]]), [5], SearchSettings(beam=4, nbest=4)
    )
    assert only.tokens == []


def test_log_probabilities_above_zero_by_rounding(padded: Any) -> None:
    (hypotheses,) = beam_search(
        Uniform(8, {4: 1e-7, EOS: -3.0}), padded([[4]]), [9], SearchSettings()
    )
    assert all(score <= 0 for score in hypotheses[0].token_scores)


def test_nan_probabilities_are_an_error(padded: Any) -> None:
    broken = Uniform(8, dict.fromkeys(range(8), math.nan))
    with pytest.raises(CheckpointError, match="not numbers"):
        beam_search(broken, padded([[4]]), [5])


class Counting(Constraint):
    """Allows exactly `wanted` tokens, all even, and then EOS."""

    def __init__(self, wanted: Tensor, vocabulary_size: int) -> None:
        self.wanted, self.vocabulary_size = wanted, vocabulary_size

    def restrict(self, scores: Tensor) -> None:
        even = torch.arange(self.vocabulary_size) % 2 == 0
        end = torch.arange(self.vocabulary_size) == EOS
        allowed = torch.where(
            self.wanted.unsqueeze(1) > 0, even, end & (self.wanted.unsqueeze(1) == 0)
        )
        scores.masked_fill_(~allowed, -torch.inf)

    def advance(self, rows: Tensor, tokens: Tensor) -> Counting:
        return Counting(self.wanted[rows] - 1, self.vocabulary_size)


@settings(max_examples=30)
@given(
    seed=seeds, beam=st.integers(1, 5), wanted=st.lists(st.integers(0, 6), min_size=5, max_size=5)
)
def test_a_constraint_holds_for_every_hypothesis(
    toy: Callable[..., Any], padded: Any, seed: int, beam: int, wanted: list[int]
) -> None:
    options = SearchSettings(beam=beam, nbest=beam)
    constraint = Counting(torch.tensor(wanted), 9)
    results = beam_search(toy(9, seed), padded(SOURCES), [8] * 5, options, constraint)
    for number, hypotheses in zip(wanted, results, strict=True):
        assert hypotheses
        for h in hypotheses:
            assert len(h.tokens) == number
            assert all(token % 2 == 0 and token > EOS for token in h.tokens)


def test_hypotheses_without_an_allowed_token_are_cut(toy: Callable[..., Any], padded: Any) -> None:
    class DeadEnd(Counting):
        def restrict(self, scores: Tensor) -> None:
            super().restrict(scores)
            scores[:, EOS] = -torch.inf

        def advance(self, rows: Tensor, tokens: Tensor) -> DeadEnd:
            return DeadEnd(self.wanted[rows] - 1, self.vocabulary_size)

    (hypotheses,) = beam_search(
        toy(9, 2), padded([[4]]), [8], SearchSettings(), DeadEnd(torch.tensor([3]), 9)
    )
    assert len(hypotheses[0].tokens) == 3
    assert len(hypotheses[0].token_scores) == 3
