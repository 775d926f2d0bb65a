"""The batch plan: every sentence once, within the budget, and a function of its arguments alone."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from nmt_cli.data import batching
from nmt_cli.data.batching import (
    BatchPlan,
    collate,
    cut,
    default_micro_batches,
    even_cuts,
    groups_of_update,
    length_buckets,
    stride,
)
from nmt_cli.data.corpus import Part
from nmt_cli.data.sentences import Sentences
from nmt_cli.interfaces import BOS, EOS, PAD

pairs_of_lengths = st.lists(
    st.tuples(st.integers(1, 60), st.integers(1, 60)), min_size=1, max_size=120
)
sorted_lengths = st.lists(st.integers(1, 60), min_size=1, max_size=60).map(sorted)


def plan(pairs: list[tuple[int, int]], tokens: int = 4096, seed: int = 1) -> BatchPlan:
    source, target = np.array(pairs).T
    return BatchPlan(source, target, tokens, seed)


def updates(plan: BatchPlan, epoch: int = 0) -> list[list[int]]:
    return [update.tolist() for update in plan.epoch(epoch)]


@pytest.fixture
def _small_pools(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batching, "POOL", 32)
    monkeypatch.setattr(batching, "_CHUNKS", 16)


@given(pairs=pairs_of_lengths, tokens=st.integers(60, 5000), epoch=st.integers(0, 3))
@pytest.mark.usefixtures("_small_pools")
def test_every_sentence_once_and_within_the_budget(
    pairs: list[tuple[int, int]], tokens: int, epoch: int
) -> None:
    all_updates = updates(plan(pairs, tokens), epoch)
    assert sorted(i for update in all_updates for i in update) == list(range(len(pairs)))
    for update in all_updates:
        assert all(sum(pairs[i][side] for i in update) <= tokens for side in (0, 1))


class Growth(Sentences):
    """Limits that grow evenly over some epochs."""

    def __init__(self, epochs: int) -> None:
        self.begins = range(epochs)

    def limit(self, epoch: int, limit: int) -> int:
        return limit * min(epoch + 1, len(self.begins)) // len(self.begins)


class Stages(Sentences):
    """Weights by the epochs in which they begin."""

    def __init__(self, stages: dict[int, list[float]]) -> None:
        self.begins, self.stages = list(stages), stages

    def weights(self, epoch: int, weights: Sequence[float]) -> Sequence[float]:
        return self.stages[max(first_epoch for first_epoch in self.begins if first_epoch <= epoch)]


@given(
    pairs=pairs_of_lengths,
    size=st.integers(60, 20_000),
    growth=st.integers(1, 5),
    epoch=st.integers(0, 6),
)
@pytest.mark.usefixtures("_small_pools")
def test_a_batch_grows_over_some_epochs(
    pairs: list[tuple[int, int]], size: int, growth: int, epoch: int
) -> None:
    """And then stays. An epoch is planned as one whose updates always had this size."""
    growing = dataclasses.replace(plan(pairs, size), changes=[Growth(growth)])
    assert [growing.tokens(number) for number in (0, growth - 1, growth + 3)] == [
        size // growth,
        size,
        size,
    ]
    assert updates(growing, epoch) == updates(plan(pairs, growing.tokens(epoch)), epoch)
    assert growing.full_epoch() == growth - 1


@given(pairs=pairs_of_lengths, position=st.integers(0, 5))
@pytest.mark.usefixtures("_small_pools")
def test_the_plan_is_a_function_of_seed_and_epoch(
    pairs: list[tuple[int, int]], position: int
) -> None:
    """And its end is the same without its beginning.

    The last update of an epoch is known as such.
    """
    epochs = {epoch: updates(plan(pairs, 100), epoch) for epoch in (2, 3)}
    expected = [
        (epoch, place, update, place == len(updates_of_epoch) - 1)
        for epoch, updates_of_epoch in epochs.items()
        for place, update in enumerate(updates_of_epoch)
        if epoch == 3 or place >= position
    ]
    resumed = itertools.islice(plan(pairs, 100).updates(2, position), len(expected))
    assert [
        (epoch, place, update.tolist(), last) for epoch, place, update, last in resumed
    ] == expected


@given(parts=st.lists(st.tuples(st.integers(0, 30), st.integers(1, 4)), min_size=1, max_size=4))
@pytest.mark.usefixtures("_small_pools")
def test_an_epoch_has_every_sentence_as_often_as_its_weight_says(
    parts: list[tuple[int, int]],
) -> None:
    ends = list(itertools.accumulate(size for size, _ in parts))
    assume(ends[-1])
    text = [Part(end - size, end, weight) for end, (size, weight) in zip(ends, parts, strict=True)]
    lengths = np.arange(ends[-1]) % 7 + 1
    all_updates = updates(BatchPlan(lengths, lengths, 100, 1, text), epoch=1)
    expected = [
        i for part in text for i in range(part.first, part.end) for _ in range(int(part.weight))
    ]
    assert sorted(itertools.chain(*all_updates)) == expected
    assert BatchPlan(lengths, lengths, 100, 1, text).size(1) == len(expected)


@given(
    parts=st.lists(st.tuples(st.integers(0, 30), st.floats(0, 3)), min_size=1, max_size=4),
    later=st.lists(st.floats(0, 3), min_size=4, max_size=4),
)
@pytest.mark.usefixtures("_small_pools")
def test_fractions_use_every_sentence_in_turn(
    parts: list[tuple[int, float]], later: list[float]
) -> None:
    """Over any number of epochs, each as often as any other of its part, or once more.

    In two stages.
    """
    ends = list(itertools.accumulate(size for size, _ in parts))
    stages = {0: [weight for _, weight in parts], 3: later[: len(parts)]}
    assume(
        all(
            sum(n * w for (n, _), w in zip(parts, weights, strict=True)) >= 1
            for weights in stages.values()
        )
    )
    lengths = np.arange(ends[-1]) % 7 + 1
    text = [Part(end - n, end, 1) for end, (n, _) in zip(ends, parts, strict=True)]
    staged = BatchPlan(lengths, lengths, 100, 1, text, changes=[Stages(stages)])
    seen = np.zeros(ends[-1], np.int64)
    expected = np.zeros(len(parts))
    for epoch in range(7):
        weights = np.array(stages[3 if epoch >= 3 else 0])
        sentences = [i for update in staged.epoch(epoch) for i in update.tolist()]
        seen += np.bincount(sentences, minlength=len(seen))
        expected += weights * [size for size, _ in parts]
        assert staged.size(epoch) == len(sentences)
        assert len(sentences) == pytest.approx(
            (weights * [size for size, _ in parts]).sum(), abs=0.5 + 1e-9
        )
        for end, (size, _), wanted in zip(ends, parts, expected, strict=True):
            counts = seen[end - size : end]
            assert counts.sum() == pytest.approx(wanted, abs=epoch + 1 + 1e-9)
            assert np.ptp(counts) <= 1 if size else True


def test_weights_of_a_stage_may_be_those_of_the_parts() -> None:
    lengths = np.arange(500) % 9 + 1
    plain = BatchPlan(lengths, lengths, 60, 1, [Part(0, 300, 1), Part(300, 500, 2)])
    staged = dataclasses.replace(plain, changes=[Stages({0: [1.0, 2.0]})])
    assert updates(plain, 3) == updates(staged, 3)


@pytest.mark.parametrize("size", [1, 2, 3, 10, 1000, 1024, 9973, 123_456])
def test_a_few_turns_are_spread_over_the_part(size: int) -> None:
    turns = np.arange(size) * stride(size) % size
    assert len({*turns.tolist()}) == size
    for start, few in ((0, size // 10), (size // 3, size // 7)):
        gaps = np.diff(np.sort(turns[start : start + few]))
        assert gaps.max(initial=0) <= 6 * size / max(few, 1)


def test_a_fraction_is_of_the_whole_part() -> None:
    """In a corpus of many chunks and pools, too."""
    lengths = np.full(2000, 5)
    fractional = BatchPlan(lengths, lengths, 100, 1, [Part(0, 1000, 1), Part(1000, 2000, 0.25)])
    first, second = (
        {i for update in fractional.epoch(epoch) for i in update.tolist() if i >= 1000}
        for epoch in (0, 1)
    )
    assert len(first) == len(second) == 250
    assert not first & second
    assert all(
        sum(start <= i < start + 100 for i in first) in range(20, 31)
        for start in range(1000, 2000, 100)
    )


def test_epochs_and_seeds_differ() -> None:
    pairs = [(n % 7 + 1, n % 5 + 1) for n in range(200)]
    orders = [
        updates(plan(pairs, 60, seed=seed), epoch) for seed, epoch in ((1, 0), (1, 1), (2, 0))
    ]
    assert orders[0] != orders[1] != orders[2] != orders[0]


@given(pairs=pairs_of_lengths, most=st.integers(1, 9))
def test_an_update_has_a_number_of_sentences(pairs: list[tuple[int, int]], most: int) -> None:
    """Where tokens do not limit it, an update has the most sentences, except the last one."""
    batch_plan = BatchPlan(*np.array(pairs).T, 1_000_000, 1, batch_sentences=8 * most)
    sizes = [len(update) for update in batch_plan.epoch(0)]
    assert sum(sizes) == len(pairs)
    assert max(sizes) <= 8 * most
    longest = [max(pair) for pair in pairs]
    assert batch_plan.usual_tokens() == round(8 * most * sum(longest) / len(longest))
    for few, growth in itertools.product(range(1, 9), (1, 2)):
        growing = dataclasses.replace(batch_plan, batch_sentences=few, changes=[Growth(growth)])
        assert max(map(len, growing.epoch(0))) == min(len(pairs), max(1, few // growth))
    groups = length_buckets(*np.array(pairs).T, 1_000_000, sentences=most)
    assert [len(group) for group in groups] == [most] * (len(pairs) // most) + [
        len(pairs) % most
    ] * (len(pairs) % most > 0)


def test_an_update_mixes_lengths_from_the_whole_corpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batching, "POOL", 400)
    monkeypatch.setattr(batching, "_CHUNKS", 1000)
    all_updates = updates(plan([(1 + i % 100, 1 + i % 100) for i in range(8000)], 16_384))
    assert {i // 400 for i in itertools.chain(*all_updates[:3])} == set(range(20))
    assert all(np.ptp([i % 100 for i in update]) > 65 for update in all_updates[:2])


@given(pairs=pairs_of_lengths, count=st.integers(1, 12))
def test_micro_batches_are_a_partition_of_the_update_by_length(
    pairs: list[tuple[int, int]], count: int
) -> None:
    micro_batches = cut(*np.array(pairs).T, count)
    assert len(micro_batches) == count
    assert sorted(i for indices in micro_batches for i in indices) == list(range(len(pairs)))
    assert sum(len(indices) > 0 for indices in micro_batches) == min(count, len(pairs))
    longest = [max(pairs[i]) for indices in micro_batches for i in indices]
    assert longest == sorted(longest)


@given(lengths=sorted_lengths, count=st.integers(1, 6))
def test_the_largest_micro_batch_is_as_small_as_can_be(lengths: list[int], count: int) -> None:
    def largest(cuts: list[int]) -> int:
        parts = itertools.pairwise([0, *cuts, len(lengths)])
        return max((end - start) * lengths[end - 1] for start, end in parts if end > start)

    actual_cuts = even_cuts(np.array(lengths), count)
    # Of the first sentences, in a growing number of micro-batches.
    least = [0, *itertools.repeat(0, len(lengths))]
    for end in range(1, len(lengths) + 1):
        least[end] = end * lengths[end - 1]
    for _ in range(count - 1):
        least = [0] + [
            min(max(least[start], (end - start) * lengths[end - 1]) for start in range(end))
            for end in range(1, len(lengths) + 1)
        ]
    assert largest(actual_cuts) <= 1.01 * least[-1] + 1


def test_micro_batches_have_little_padding_and_are_even() -> None:
    """As many as groups: about the padding of the groups."""
    random = np.random.default_rng(1)
    source = random.lognormal(3.25, 0.6, 40_000).astype(np.int64).clip(2, 250)
    target = (source * random.normal(1.05, 0.15, 40_000)).astype(np.int64).clip(2, 250)
    batch_plan = BatchPlan(source, target, 25_000, seed=1)
    shares, most = [], []
    for update in itertools.islice(batch_plan.epoch(0), 30):
        lengths = source[update], target[update]
        sizes = [
            len(places) * int(lengths[0][places].max() + lengths[1][places].max())
            for places in cut(*lengths, 8)
        ]
        shares.append(sum(sizes) / (source[update].sum() + target[update].sum()))
        most.append(max(sizes) / (sum(sizes) / len(sizes)))
    assert np.mean(shares) < 1.2
    assert np.mean(most) < 1.15


def test_buckets_hold_sentences_of_similar_length() -> None:
    random = np.random.default_rng(0)
    source = random.integers(5, 100, 5000)
    groups = length_buckets(source, source + random.integers(-4, 5, 5000), 1000)
    padded = sum(int(source[group].max()) * len(group) for group in groups)
    assert padded < 1.1 * source.sum()


@pytest.mark.parametrize(
    ("tokens", "expected"), [(500, 1), (2048, 1), (4096, 2), (25_000, 8), (400_000, 8)]
)
def test_groups_follow_from_the_batch(tokens: int, expected: int) -> None:
    assert groups_of_update(tokens) == expected


@pytest.mark.parametrize(
    ("tokens", "ranks", "limit", "expected"),
    [
        (500, 1, 4096, 1),
        (500, 3, 4096, 3),
        (2048, 1, 4096, 1),
        (25_000, 1, 4096, 8),
        (25_000, 3, 4096, 9),
        (25_000, 1, 32_768, 8),
        (25_000, 8, 32_768, 8),
        (400_000, 8, 32_768, 16),
    ],
)
def test_ranks_share_the_micro_batches_evenly(
    tokens: int, ranks: int, limit: int, expected: int
) -> None:
    assert default_micro_batches(tokens, ranks, limit) == expected


def test_collate_shifts_the_target_and_pads_on_the_right() -> None:
    batch = collate([np.array([5, 6]), np.array([7])], [np.array([8]), np.array([9, 10])])
    assert batch.source.tolist() == [[5, 6, EOS], [7, EOS, PAD]]
    assert batch.target_in.tolist() == [[BOS, 8, PAD], [BOS, 9, 10]]
    assert batch.target_out.tolist() == [[8, EOS, PAD], [9, 10, EOS]]
    assert batch.num_tokens == 5


@given(pairs=pairs_of_lengths, count=st.integers(1, 9))
def test_packed_micro_batches(pairs: list[tuple[int, int]], count: int) -> None:
    """Every sentence once, and about the same number of tokens in each."""
    source, target = np.array(pairs).T
    for update in BatchPlan(source, target, 3600, 1).epoch(0):
        micro_batches = [
            update[places] for places in cut(source[update], target[update], count, packed=True)
        ]
        assert sorted(i for indices in micro_batches for i in indices.tolist()) == sorted(
            update.tolist()
        )
        longest = np.maximum(source, target)
        sizes = [int(longest[indices].sum()) for indices in micro_batches]
        assert max(sizes) - min(sizes) <= 2 * longest[update].max()
    assert default_micro_batches(25_000, 1, 32_768, packed=True) == 1
    assert default_micro_batches(25_000, 8, 32_768, packed=True) == 8
    assert default_micro_batches(100_000, 2, 32_768, packed=True) == 4


def test_packed_sentences_are_dealt_back_and_forth() -> None:
    """In one direction, the last micro-batch would have the longest sentence of each turn."""
    lengths = np.arange(1, 13)
    micro_batches = cut(lengths, lengths, 3, packed=True)
    assert [int(lengths[indices].sum()) for indices in micro_batches] == [26, 26, 26]
