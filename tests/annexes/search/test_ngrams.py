from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from searches import SOURCES, ngrams, nothing, outputs, searches

from nmt_cli.annexes.search.ngrams import NoRepeatedNgrams

seeds = st.integers(0, 10**6)


@settings(max_examples=60)
@given(
    seed=seeds,
    n=st.integers(1, 4),
    how=searches,
    limit=st.integers(0, 20),
    sharpness=st.sampled_from([1.0, 5.0]),
)
def test_no_output_has_an_ngram_twice(
    toy: Callable[..., Any], padded: Any, seed: int, n: int, how: str, limit: int, sharpness: float
) -> None:
    model = toy(8, seed, sharpness)
    for hypotheses in outputs(
        how, model, padded(SOURCES), [limit] * 5, NoRepeatedNgrams(n, nothing())
    ):
        for h in hypotheses:
            assert len(set(ngrams(h.tokens, n))) == len(ngrams(h.tokens, n))


@settings(max_examples=60)
@given(seed=seeds, n=st.integers(1, 4), sharpness=st.sampled_from([1.0, 5.0]))
def test_a_greedy_output_without_repetition_does_not_change(
    toy: Callable[..., Any], padded: Any, seed: int, n: int, sharpness: float
) -> None:
    model, limits = toy(12, seed, sharpness), [8] * 5
    free = outputs("greedy", model, padded(SOURCES), limits, None)
    held = outputs("greedy", model, padded(SOURCES), limits, NoRepeatedNgrams(n, nothing()))
    for (left,), (right,) in zip(free, held, strict=True):
        if len(set(ngrams(left.tokens, n))) == len(ngrams(left.tokens, n)):
            assert left.tokens == right.tokens
        else:
            assert left.tokens != right.tokens


@given(
    n=st.integers(1, 4),
    rows=st.lists(st.lists(st.integers(0, 4), min_size=7, max_size=7), min_size=1, max_size=6),
    length=st.integers(0, 7),
)
def test_exactly_the_tokens_that_repeat_an_ngram_are_forbidden(
    n: int, rows: list[list[int]], length: int
) -> None:
    rows = [row[:length] for row in rows]
    scores = torch.full((len(rows), 5), -1.5)
    tokens = torch.tensor(rows, dtype=torch.long).view(len(rows), length)
    NoRepeatedNgrams(n, tokens).restrict(scores)
    for row, row_scores in zip(rows, scores.tolist(), strict=True):
        new = [ngrams([*row, token], n)[-1:] for token in range(5)]
        assert row_scores == [
            -torch.inf if set(gram) & set(ngrams(row, n)) else -1.5 for gram in new
        ]
