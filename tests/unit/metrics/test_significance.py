"""Paired tests: as sacreBLEU runs them, and right where the answer is known."""

from __future__ import annotations

import random

import pytest
from sacrebleu.metrics import BLEU
from sacrebleu.significance import PairedTest

from nmt_cli.errors import UsageError
from nmt_cli.metrics.significance import TESTS, paired_test

CHANCE = random.Random(5)
REFERENCE = [
    " ".join(CHANCE.choices("der die das Haus Hund läuft geht schnell .".split(), k=9))
    for _ in range(40)
]
NAMED = [("reference", REFERENCE)]
GOOD = [
    line if number % 4 else line.replace("Hund", "Katze") for number, line in enumerate(REFERENCE)
]
BAD = [" ".join(reversed(line.split()[:7])) for line in REFERENCE]


@pytest.mark.parametrize("test", TESTS)
def test_a_worse_system_is_told_from_the_baseline_and_the_same_is_not(test: str) -> None:
    baseline, same, bad = paired_test(
        [("good", GOOD), ("same", GOOD), ("bad", BAD)], NAMED, test, ["multi-bleu"], samples=200
    )
    assert baseline.p_value is None
    assert same.p_value == 1
    assert bad.p_value is not None
    assert bad.p_value < 0.01
    assert baseline.score == same.score > bad.score
    assert {comparison.baseline for comparison in (baseline, same, bad)} == {"good"}


@pytest.mark.parametrize("test", TESTS)
def test_a_better_system_is_told_from_the_baseline_too(test: str) -> None:
    _, good = paired_test([("bad", BAD), ("good", GOOD)], NAMED, test, ["bleu"], samples=200)
    assert good.p_value is not None
    assert good.p_value < 0.01


@pytest.mark.parametrize("test", TESTS)
def test_the_figures_are_sacrebleus(test: str) -> None:
    systems = [("good", GOOD), ("bad", BAD)]
    our_report = paired_test(systems, NAMED, test, ["bleu"], samples=100)
    signatures, their_report = PairedTest(
        systems, {"BLEU": BLEU()}, [REFERENCE], test_type=TESTS[test], n_samples=100
    )()
    assert [comparison.p_value for comparison in our_report] == [
        result.p_value for result in their_report["BLEU"]
    ]
    assert [comparison.mean for comparison in our_report] == [
        result.mean for result in their_report["BLEU"]
    ]
    assert our_report[0].signature == str(signatures["BLEU"])


@pytest.mark.parametrize(("count", "test"), [(1, "paired-bootstrap"), (2, "paired-bootstrp")])
def test_what_cannot_be_compared_is_refused(count: int, test: str) -> None:
    with pytest.raises(UsageError):
        paired_test([("a", GOOD)] * count, NAMED, test)
