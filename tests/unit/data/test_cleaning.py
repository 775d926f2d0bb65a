"""Reasons to drop a pair, duplicates, and overlap."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt_cli.data.cleaning import Limits, PairHashes, pair_hash, rejection


@pytest.mark.parametrize(
    ("source", "target", "reason"),
    [
        ("a dog", "ein Hund", None),
        ("a\0dog", "ein Hund", "NUL byte"),
        ("", "\0", "NUL byte"),
        ("a dog", "", "empty"),
        (" \u00a0\t\x85", "ein Hund", "empty"),
        ("ww " * 250, "ww " * 250, None),
        ("w " * 251, "w " * 250, "too long"),
        ("w " * 250, "w " * 251, "too long"),
        ("w" * 2500, "w" * 2500, None),
        ("w" * 2501, "w" * 2500, "too long"),
        ("w" * 2500, "w" * 2501, "too long"),
        ("w" * 50, "w" * 10, None),
        ("w" * 51, "w" * 10, "length ratio"),
        ("w" * 10, "w" * 51, "length ratio"),
        ("w" * 10 + " " * 50, "w" * 10, None),
        # Seven words against one: fused German is no reason to drop a pair.
        ("four hundred thousand two hundred thirty-one", "vierhunderttausendzweihunderteinunddreißig", None),
        ("same", "same", None),
    ],
)
def test_first_reason_that_holds(source: str, target: str, reason: str | None) -> None:
    assert rejection(source, target, Limits()) == reason


@pytest.mark.parametrize(
    ("source", "target", "limits", "reason"),
    [
        ("a b c", "aaaaaaaaaaaaaaaaa b", Limits(max_ratio=1.5, ratio_in_words=True), None),
        ("a b c d", "a b", Limits(max_ratio=1.5, ratio_in_words=True), "length ratio"),
        ("Berlin ", "Berlin", Limits(allow_identical=False), "source equals target"),
        ("Berlin", "berlin", Limits(allow_identical=False), None),
        ("w " * 9999, "w", Limits(max_words=0, max_characters=0, max_ratio=0), None),
    ],
)
def test_limits_can_be_changed(source: str, target: str, limits: Limits, reason: str | None) -> None:
    assert rejection(source, target, limits) == reason


@given(st.lists(st.tuples(st.text("ab\t", max_size=2), st.text("ab\t", max_size=2)), max_size=40))
def test_repeated_agrees_with_a_set_of_the_pairs(pairs: list[tuple[str, str]]) -> None:
    hashes, seen, expected = PairHashes(), set(), []
    for pair in pairs:
        hashes.add(pair_hash(*pair))
        expected.append(pair in seen)
        seen.add(pair)
    assert hashes.repeated().tolist() == expected


def test_many_hashes_and_where_the_sides_meet() -> None:
    hashes = PairHashes()
    for pair in [("ab", "c"), ("a", "bc"), ("a", "b"), ("b", "a")]:
        hashes.add(pair_hash(*pair))
    for number in [*range(1000), *range(0, 1000, 7)]:
        hashes.add(pair_hash(str(number), ""))
    repeated = hashes.repeated()
    assert not repeated[:1004].any()
    assert repeated[1004:].all()
