"""Statistics of paired samples."""

from __future__ import annotations

from benchmarks.samples import Sample, Spread, ratio, speed, spread

CASE = {"model": "base", "batch": 32}


def samples(system: str, speeds: list[float], first: int = 0) -> list[Sample]:
    return [
        Sample(CASE, system, number, 10 * speed, 10.0) for number, speed in enumerate(speeds, first)
    ]


def test_the_spread_is_the_quartiles() -> None:
    assert spread([5.0, 1.0, 3.0, 2.0, 4.0]) == Spread(2.0, 3.0, 4.0)
    assert spread([7.0]) == Spread(7.0, 7.0, 7.0)


def test_a_speed_is_of_one_case_and_one_system() -> None:
    others = [Sample({**CASE, "batch": 1}, "a", 0, 1, 1.0), Sample(CASE, "b", 0, 1, 1.0)]
    assert speed([*others, *samples("a", [2.0, 2.0])], CASE, "a") == Spread(2.0, 2.0, 2.0)


def test_a_ratio_is_taken_within_the_rounds_that_both_have() -> None:
    """The ratio of the medians would be 4."""
    interval = ratio(
        [*samples("a", [1.0, 8.0, 9.0, 5.0]), *samples("b", [1.0, 2.0, 9.0])], CASE, "a", "b"
    )
    assert interval == Spread(1.0, 1.0, 2.5)
    assert ratio(samples("a", [1.0]), CASE, "a", "b") is None
