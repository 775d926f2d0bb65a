"""Statistics of paired samples."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.samples import Sample, Spread, append, rates, ratio, spread

CASE = {"model": "base", "batch": 32}


def samples(system: str, speeds: list[float], first: int = 0) -> list[Sample]:
    return [Sample(CASE, system, number, 10 * speed, 10.0) for number, speed in enumerate(speeds, first)]


def test_the_spread_is_the_quartiles() -> None:
    assert spread([5.0, 1.0, 3.0, 2.0, 4.0]) == Spread(2.0, 3.0, 4.0)
    assert spread([7.0]) == Spread(7.0, 7.0, 7.0)


def test_rates_are_those_of_the_case_and_the_system() -> None:
    others = [Sample({**CASE, "batch": 1}, "a", 0, 1, 1.0), Sample(CASE, "b", 0, 1, 1.0)]
    assert rates([*others, *samples("a", [2.0, 3.0])], CASE, "a") == {0: 2.0, 1: 3.0}


def test_a_ratio_is_taken_within_a_round() -> None:
    """The ratio of the medians would be 4."""
    found = ratio([*samples("a", [1.0, 8.0, 9.0]), *samples("b", [1.0, 2.0, 9.0])], CASE, "a", "b")
    assert found == Spread(1.0, 1.0, 2.5)


def test_the_ratio_uses_the_rounds_that_both_have() -> None:
    ours, theirs = samples("a", [1.0, 8.0]), samples("b", [2.0, 5.0], first=1)
    assert ratio([*ours, *theirs], CASE, "a", "b") == Spread(4.0, 4.0, 4.0)
    assert ratio(ours, CASE, "a", "b") is None


def test_samples_are_lines_of_json(tmp_path: Path) -> None:
    for sample in samples("a", [1.5, 2.5]):
        append(tmp_path / "samples.jsonl", sample)
    lines = [json.loads(line) for line in (tmp_path / "samples.jsonl").read_text("utf-8").splitlines()]
    assert lines[1] == {"case": CASE, "system": "a", "round": 1, "amount": 25.0, "seconds": 10.0}
