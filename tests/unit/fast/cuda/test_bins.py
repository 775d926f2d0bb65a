"""Bins of whole pairs: every pair once and in order, none mixed, few and full bins."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nmt_cli.data.batching import BatchPlan
from nmt_cli.fast.cuda.bins import WIDTH, binned, packed
from nmt_cli.fast.packing import Bins
from nmt_cli.interfaces import BOS, EOS, PAD, Batch

if TYPE_CHECKING:
    from nmt_cli.interfaces import Ragged

pairs_of_lengths = st.lists(
    st.tuples(st.integers(0, 200), st.integers(0, 200)), min_size=1, max_size=40
)


def side(lengths: list[int], first: int) -> Ragged:
    """Return sentences without two equal ids."""
    return np.arange(first, first + sum(lengths)).astype(np.uint32), np.array(lengths, np.int64)


def sentences_in(tokens: torch.Tensor, packing: Bins) -> dict[tuple[int, int], list[int]]:
    """Return the tokens of each sentence by its bin and number, in the order of positions."""
    tokens_by_sentence: dict[tuple[int, int], list[int]] = {}
    positions = packing.positions.view_as(tokens).tolist()
    for row, (ids, numbers) in enumerate(
        zip(tokens.tolist(), packing.sentences.tolist(), strict=True)
    ):
        for column, (token, number) in enumerate(zip(ids, numbers, strict=True)):
            if number:
                sentence = tokens_by_sentence.setdefault((row, number), [])
                assert positions[row][column] == len(sentence)
                sentence.append(token)
            else:
                assert token == PAD
                assert positions[row][column] == 0
    return tokens_by_sentence


@given(pairs=pairs_of_lengths)
def test_every_pair_is_whole_in_one_bin(pairs: list[tuple[int, int]]) -> None:
    (sources, source_lengths), (targets, target_lengths) = (
        side(list(lengths), first)
        for lengths, first in zip(zip(*pairs, strict=True), (10, 10_000), strict=True)
    )
    batch = binned((sources, source_lengths), (targets, target_lengths))
    assert isinstance(batch.sources, Bins)
    assert isinstance(batch.targets, Bins)
    assert batch.source.shape == batch.target_in.shape == batch.target_out.shape
    source, target_in, target_out = (
        sentences_in(tokens, packing)
        for tokens, packing in (
            (batch.source, batch.sources),
            (batch.target_in, batch.targets),
            (batch.target_out, batch.targets),
        )
    )
    cut = [
        np.split(ids, lengths.cumsum()[:-1])
        for ids, lengths in ((sources, source_lengths), (targets, target_lengths))
    ]
    expected = [([*s.tolist(), EOS], [*t.tolist(), EOS]) for s, t in zip(*cut, strict=True)]
    assert source.keys() == target_out.keys()
    assert sorted((source[place], target_out[place]) for place in source) == sorted(expected)
    assert target_in == {place: [BOS, *ids[:-1]] for place, ids in target_out.items()}
    assert batch.num_tokens == len(targets) + len(target_lengths)


@given(pairs=pairs_of_lengths)
def test_the_shape_depends_on_little(pairs: list[tuple[int, int]]) -> None:
    """Bins are as wide as the longest sentence needs.

    Two of any three neighbours would not fit into one.
    """
    lengths = np.array(pairs).T + 1
    width = binned(
        *(side((side_lengths - 1).tolist(), 10) for side_lengths in lengths)
    ).source.size(1)
    assert width % WIDTH == 0
    assert 0 <= width - lengths.max() < WIDTH
    bins = packed(lengths, width)[0] // width
    filled = np.stack([np.bincount(bins, weights=side_lengths) for side_lengths in lengths])
    assert filled.max() <= width
    assert (filled.max(0) > width / 2).sum() >= len(filled[0]) - 1  # else two of them would be one


def test_few_numbers_of_bins() -> None:
    needed = [1, 25, 63, 64, 65, 190, 200, 201]
    batches = [binned(side([100] * bins, 10), side([100] * bins, 10)) for bins in needed]
    assert [len(batch.source) for batch in batches] == [1, 25, 63, 64, 66, 192, 200, 204]


def test_bins_are_full() -> None:
    """Updates of text as in `benchmarks.synthetic`: the longer side has 4 % of filler at most."""
    random = np.random.default_rng(0)
    source = np.clip(random.lognormal(3.07, 0.55, 5000).round(), 3, 100).astype(int)
    target = np.clip((source * random.lognormal(0.0, 0.15, 5000)).round(), 3, 100).astype(int)
    plan = BatchPlan(source + 1, target + 1, 25_000, 1)
    for update in list(plan.epoch(0))[:-1]:
        lengths = np.stack([source[update], target[update]]) + 1
        bins = packed(lengths, WIDTH).max() // WIDTH + 1
        assert lengths.sum(1).max() / (WIDTH * bins) > 0.96


def test_filler_bins_at_the_end() -> None:
    batch = binned(side([100] * 65, 10), side([100] * 65, 10))
    assert batch.source.shape == (66, WIDTH)
    assert not batch.source[65].any()
    assert not batch.target_in[65].any()


@pytest.mark.parametrize("field", ["source", "target_in", "target_out"])
def test_batches_are_the_same_after_a_restart(field: str) -> None:
    batches: list[Batch] = [
        binned(side([3, 50, 7, 90], 4), side([5, 40, 8, 100], 4)) for _ in range(2)
    ]
    assert torch.equal(*(getattr(batch, field) for batch in batches))
