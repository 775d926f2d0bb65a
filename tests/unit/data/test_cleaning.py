"""Duplicates."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nmt_cli.data.cleaning import pair_hash, repeated


@given(st.lists(st.tuples(st.text("ab\t", max_size=2), st.text("ab\t", max_size=2)), max_size=40))
def test_repeated_agrees_with_a_set_of_the_pairs(pairs: list[tuple[str, str]]) -> None:
    seen, expected = set(), []
    for pair in pairs:
        expected.append(pair in seen)
        seen.add(pair)
    assert (
        repeated(np.frombuffer(b"".join(pair_hash(*pair) for pair in pairs), np.uint64)).tolist()
        == expected
    )


def test_many_hashes_and_where_the_sides_meet() -> None:
    different = [
        ("ab", "c"),
        ("a", "bc"),
        ("a", "b"),
        ("b", "a"),
        *((f"{number}", "") for number in range(1000)),
    ]
    is_repeated = repeated(
        np.frombuffer(
            b"".join(pair_hash(*pair) for pair in [*different, *different[::7]]), np.uint64
        )
    )
    assert not is_repeated[: len(different)].any()
    assert is_repeated[len(different) :].all()
