"""Number names against num2words, which is the oracle here and not needed at run time."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from num2words import num2words
from number_names import LANGUAGES, LARGEST, draw, main, name, split, write_corpus

from nmt_cli.errors import UsageError

NUMBERS = [*range(2000), *(random.Random(i).randrange(10 ** random.Random(i).randrange(4, 10)) for i in range(3000))]


def oracle(n: int, language: str) -> str:
    """num2words, put into the forms chosen here.

    English: American, so no "and" and no comma. German: it writes "eins" before "tausend" and "Millionen" in numbers
    such as 101000, where the grammar has "ein" and "eine".
    """
    words = str(num2words(n, lang=language))
    if language == "en":
        return words.replace(",", "").replace(" and ", " ")
    if language == "de":
        return words.replace("einstausend", "eintausend").replace("eins Millionen", "eine Millionen")
    return words


@pytest.mark.parametrize("language", sorted(LANGUAGES))
def test_names_agree_with_num2words(language: str) -> None:
    wrong = [(n, name(n, language), oracle(n, language)) for n in NUMBERS if name(n, language) != oracle(n, language)]
    assert wrong == []


@pytest.mark.parametrize(
    ("n", "language", "expected"),
    [
        (42_315, "en", "forty-two thousand three hundred fifteen"),
        (42_315, "de", "zweiundvierzigtausenddreihundertfünfzehn"),
        (101_001, "de", "einhunderteintausendeins"),
        (1_000_001, "de", "eine Million eins"),
        (101_000_000, "de", "einhunderteine Millionen"),
        (97, "fr", "quatre-vingt-dix-sept"),
        (71, "fr", "soixante et onze"),
        (80_080, "fr", "quatre-vingt mille quatre-vingts"),
        (200_000, "fr", "deux cent mille"),
        (280_200_200, "fr", "deux cent quatre-vingts millions deux cent mille deux cents"),
        (1_001, "fr", "mille un"),
    ],
)
def test_forms_fixed_by_grammar(n: int, language: str, expected: str) -> None:
    assert name(n, language) == expected


@pytest.mark.parametrize("language", sorted(LANGUAGES))
def test_different_numbers_have_different_names(language: str) -> None:
    assert len({name(n, language) for n in set(NUMBERS)}) == len(set(NUMBERS))


@pytest.mark.parametrize(("n", "language"), [(-1, "en"), (LARGEST + 1, "en"), (1, "xx")])
def test_unknown_names_are_errors(n: int, language: str) -> None:
    with pytest.raises(UsageError):
        name(n, language)


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
        assert texts == [(tmp_path / "b" / f"{part}.{language}").read_bytes() for language in ("en", "fr")]
        written += pairs
    assert set(written) == names


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "corpus"
    few = ["--train", "700", "--valid", "5", "--test", "5", "--out", str(out)]
    assert main(["--source", "fr", "--target", "de", *few]) == 0
    assert sorted(path.name for path in out.iterdir()) == [
        f"{p}.{x}" for p in ("test", "train", "valid") for x in ("de", "fr")
    ]
    assert main(["--source", "en", "--target", "en", *few]) == 2
    assert main(["--source", "en", "--target", "sv", *few]) == 2
    assert main([*few, "--valid", "-5"]) == 2
    assert main([*few, "--train", "2000000"]) == 2
    assert "cannot draw 2000010 numbers" in capsys.readouterr().err
