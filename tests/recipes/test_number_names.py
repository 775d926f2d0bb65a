"""The corpus of number names."""

from __future__ import annotations

import sys
from pathlib import Path

import numbers_below_1000
import pytest
from number_names import draw, name, split, write_corpus

from nmt_cli.errors import UsageError


@pytest.mark.parametrize(
    ("n", "language", "expected"),
    [
        (42_315, "en", "forty-two thousand three hundred fifteen"),
        (1_001, "en", "one thousand one"),
        (42_315, "de", "zweiundvierzigtausenddreihundertfünfzehn"),
        (101_001, "de", "einhunderteintausendeins"),
        (80_080, "fr", "quatre-vingt mille quatre-vingts"),
        (1_001, "fr", "mille un"),
    ],
)
def test_spelling(n: int, language: str, expected: str) -> None:
    assert name(n, language) == expected


@pytest.mark.parametrize("language", ["de", "en"])
def test_the_names_that_tests_use_without_num2words_are_the_same(language: str) -> None:
    assert [numbers_below_1000.name(n, language) for n in range(1000)] == [
        name(n, language) for n in range(1000)
    ]


def test_what_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="xx"):
        write_corpus(tmp_path / "corpus", "en", "xx", 700, 5, 5)
    monkeypatch.setitem(sys.modules, "num2words", None)
    with pytest.raises(UsageError, match="pip install num2words"):
        write_corpus(tmp_path / "corpus", "en", "de", 700, 5, 5)
    assert not (tmp_path / "corpus").exists()


def test_draw_gives_different_numbers_of_every_length_and_all_round_ones() -> None:
    numbers = draw(9000, seed=3)
    assert len(numbers) == len(set(numbers)) == 9000
    assert {len(str(n)) for n in numbers} == {1, 2, 3, 4, 5, 6}
    assert {*range(1000), 7_000, 42_000, 990_000} <= set(numbers)
    assert numbers == draw(9000, seed=3)
    assert numbers != draw(9000, seed=4)


def test_held_out_numbers_do_not_occur_in_training_which_repeats_round_ones() -> None:
    parts = split(draw(3000, seed=1), valid=100, test=200)
    train, valid, test = (set(parts[part]) for part in ("train", "valid", "test"))
    assert (len(train), len(valid), len(test)) == (2700, 100, 200)
    assert len(train | valid | test) == 3000
    assert {*range(101), 700, 8_000, 900_000} <= train
    assert [parts["train"].count(n) for n in (0, 7, 700_000, 42, 123)] == [300, 60, 60, 8, 1]


def test_corpus_is_parallel_and_the_same_for_the_same_seed(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        write_corpus(tmp_path / folder, "en", "fr", train=700, valid=20, test=30, seed=7)
    names = {(name(n, "en"), name(n, "fr")) for n in draw(750, seed=7)}
    written = []
    for part, different in (("train", 700), ("valid", 20), ("test", 30)):
        texts = [(tmp_path / "a" / f"{part}.{language}").read_bytes() for language in ("en", "fr")]
        pairs = list(zip(*(text.decode().split("\n")[:-1] for text in texts), strict=True))
        assert len(set(pairs)) == different
        assert texts == [
            (tmp_path / "b" / f"{part}.{language}").read_bytes() for language in ("en", "fr")
        ]
        written += pairs
    assert set(written) == names
