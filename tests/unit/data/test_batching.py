"""The batch plan: every sentence once, within the budget, and a function of its arguments alone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt_cli.data.batching import BatchPlan, collate, derived_micro_batches, length_buckets
from nmt_cli.interfaces import BOS, EOS, PAD

lengths = st.lists(st.tuples(st.integers(1, 60), st.integers(1, 60)), min_size=1, max_size=80)


def plan(pairs: list[tuple[int, int]], tokens: int, micro_batches: int = 2, seed: int = 1) -> BatchPlan:
    source, target = np.array(pairs).T
    return BatchPlan(source, target, tokens, micro_batches, seed)


@given(pairs=lengths, tokens=st.integers(60, 500), micro_batches=st.integers(1, 8), epoch=st.integers(0, 3))
def test_every_sentence_once_and_within_the_budget(
    pairs: list[tuple[int, int]], tokens: int, micro_batches: int, epoch: int
) -> None:
    made = plan(pairs, tokens, micro_batches).epoch(epoch)
    assert sorted(int(i) for update in made for indices in update for i in indices) == list(range(len(pairs)))
    source, target = np.array(pairs).T
    for update in made:
        assert 1 <= len(update) <= micro_batches
        for indices in update:
            for side in (source, target):
                fits = int(side[indices].max()) * len(indices) <= tokens // micro_batches
                assert fits or len(indices) == 1


@given(pairs=lengths, epoch=st.integers(0, 3))
def test_the_plan_is_a_function_of_seed_and_epoch(pairs: list[tuple[int, int]], epoch: int) -> None:
    first, second = plan(pairs, 200).epoch(epoch), plan(pairs, 200).epoch(epoch)
    assert [[i.tolist() for i in update] for update in first] == [[i.tolist() for i in update] for update in second]


def test_epochs_and_seeds_differ() -> None:
    pairs = [(n % 7 + 1, n % 5 + 1) for n in range(200)]
    orders = [
        [i.tolist() for update in plan(pairs, 60, seed=seed).epoch(epoch) for i in update]
        for seed, epoch in ((1, 0), (1, 1), (2, 0))
    ]
    assert orders[0] != orders[1] != orders[2] != orders[0]


def test_buckets_hold_sentences_of_similar_length() -> None:
    random = np.random.default_rng(0)
    source = random.integers(5, 100, 5000)
    groups = length_buckets(source, source + random.integers(-4, 5, 5000), 1000)
    padded = sum(int(source[group].max()) * len(group) for group in groups)
    assert padded < 1.1 * source.sum()


@pytest.mark.parametrize(
    ("tokens", "expected"), [(500, 1), (2048, 2), (4096, 4), (25_000, 8), (65_536, 8), (400_000, 64)]
)
def test_micro_batches_follow_from_the_batch(tokens: int, expected: int) -> None:
    assert derived_micro_batches(tokens) == expected


def test_collate_shifts_the_target_and_pads_on_the_right() -> None:
    batch = collate([np.array([5, 6]), np.array([7])], [np.array([8]), np.array([9, 10])])
    assert batch.source.tolist() == [[5, 6, EOS], [7, EOS, PAD]]
    assert batch.target_in.tolist() == [[BOS, 8, PAD], [BOS, 9, 10]]
    assert batch.target_out.tolist() == [[8, EOS, PAD], [9, 10, EOS]]
    assert batch.num_tokens == 5
