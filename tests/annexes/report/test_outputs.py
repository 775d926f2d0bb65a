"""Scores of outputs by groups, and examples."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt_cli.annexes.report.outputs import LENGTHS, Stage, by_frequency, changes, evenly, label


def test_f1_of_words_by_frequency_is_as_counted_by_hand() -> None:
    training = Counter({"the": 2000, "cat": 3})
    references = ["the cat sat", "the the"]
    outputs = ["the cat cat", "the dog"]
    # the: 3 in the references, 2 in the outputs, 2 right. cat: 1, 2, 1. Never seen: sat. dog: 1, 1,
    # 0.
    rows = {row["group"]: row for row in by_frequency([outputs], references, training)}
    assert rows["more than 999"] == {
        "group": "more than 999",
        "count": 3,
        "values": [pytest.approx(100 * 4 / 5)],
    }
    assert rows["2 to 4"] == {"group": "2 to 4", "count": 1, "values": [pytest.approx(100 * 2 / 3)]}
    assert rows["0"] == {"group": "0", "count": 1, "values": [0]}
    assert len(rows) == 3


@given(st.lists(st.sampled_from(["a b", "c", "a a d", ""]), min_size=1, max_size=8))
def test_references_as_outputs_have_an_f1_of_100(lines: list[str]) -> None:
    rows = by_frequency([lines], lines, {"a": 5, "b": 1})
    assert all(row["values"] == [100] for row in rows)
    assert sum(row["count"] for row in rows) == sum(len(line.split()) for line in lines)


@given(st.lists(st.integers(), max_size=40), st.integers(0, 12))
def test_evenly_keeps_order_and_both_ends(items: list[int], most: int) -> None:
    places = evenly(range(len(items)), most)
    assert len(places) == min(most, len(items))
    assert sorted(set(places)) == places
    if most > 1 and items:
        assert (places[0], places[-1]) == (0, len(items) - 1)


def test_only_changes_are_stages() -> None:
    stages = [Stage(1, "a"), Stage(2, "a"), Stage(3, "b"), Stage(4, "a")]
    assert changes(stages) == [(1, "a"), (3, "b"), (4, "a")]


def test_labels_are_ranges() -> None:
    assert [label(group, LENGTHS, 1) for group in (0, 1, 5)] == [
        "1 to 10",
        "11 to 20",
        "more than 60",
    ]
    assert label(0, (0, 1), 0) == "0"
