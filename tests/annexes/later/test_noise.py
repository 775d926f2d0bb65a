"""Noise changes what it says, as often as it says, and nothing else."""

from __future__ import annotations

import math
import unicodedata
from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt_cli.annexes.later.noise import CHANGES, CHARACTERS_PER_TYPO, altered, drawn, parsed
from nmt_cli.errors import UsageError

texts = st.text("aäBé zß.,;&<>中1", max_size=60)


def changed(kind: str, text: str, seed: int = 1) -> str:
    return CHANGES[kind](text, Random(seed))


def test_the_setting() -> None:
    assert parsed("") == {"no_final_stop": 0, "typos": 0, "upper": 0, "title": 0}
    expected = {"no_final_stop": 0.2, "typos": 1, "upper": 0.05, "title": 0}
    assert parsed("upper=0.05, typos=1 ,no_final_stop=.2") == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("uper=0.1", "--noise: 'uper' is not a kind of noise. Did you mean upper?"),
        ("upper=0.1,upper=0.2", "'upper' is there twice"),
        *(
            (f"typos{value}", "typos takes a probability from 0 to 1, such as typos=0.05")
            for value in ("", "=", "=x")
        ),
        *(
            (f"typos={value}", "typos takes a probability from 0 to 1")
            for value in ("1.1", "-0.1", "nan", "1e-1")
        ),
        ("upper=0.6,title=0.5", "upper and title exclude each other"),
    ],
)
def test_a_wrong_setting(text: str, message: str) -> None:
    with pytest.raises(UsageError) as refused:
        parsed(text)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        ("upper", "die Straße , isn &apos;t <2de> it ?", "DIE STRASSE , ISN &apos;T <2de> IT ?"),
        (
            "title",
            "\"a man isn't in (the) <bt> sun &quot;x",
            "\"A Man Isn't In (The) <bt> Sun &quot;x",
        ),
        ("title", "well-known 3rd &amp; élan", "Well-known 3rd &amp; Élan"),
        ("no_final_stop", "A man .", "A man"),
        ("no_final_stop", "A man.", "A man"),
        ("no_final_stop", "你好。", "你好"),
        ("no_final_stop", "Mr. Brown ...", "Mr. Brown ..."),
        ("no_final_stop", ".", "."),
        ("no_final_stop", "Who? ", "Who? "),
        ("typos", "a 1 <b> &lt; b.", "a 1 <b> &lt; b."),
    ],
)
def test_a_change(kind: str, text: str, expected: str) -> None:
    assert changed(kind, text) == expected


def test_capitals_change_both_sides_and_the_rest_the_source_only() -> None:
    expected = {"upper": ("A MAN .", "EIN MANN ."), "title": ("A Man .", "Ein Mann .")}
    expected |= {
        "no_final_stop": ("a man", "ein mann ."),
        "typos": (changed("typos", "a man ."), "ein mann ."),
    }
    for kind, pair in expected.items():
        assert altered([kind], Random(1), "a man .", "ein mann .") == pair


@given(texts, st.integers(0, 1000))
def test_typos_keep_words_markup_and_what_is_no_letter(text: str, seed: int) -> None:
    """A typo changes the length by one at most. There is one for each 20 characters of words."""
    noisy = changed("typos", text, seed)
    typos = max(1, len(text) // CHARACTERS_PER_TYPO)
    assert [c for c in noisy if not c.isalpha()] == [c for c in text if not c.isalpha()]
    assert abs(len(noisy) - len(text)) <= typos
    assert len(noisy.split()) == len(text.split())


@given(texts, st.integers(0, 1000))
def test_typos_of_decomposed_text_are_of_whole_letters(text: str, seed: int) -> None:
    decomposed = changed("typos", unicodedata.normalize("NFD", text), seed)
    assert decomposed == unicodedata.normalize("NFD", changed("typos", text, seed))


def test_each_typo_is_as_frequent_as_another() -> None:
    """Of `As` the first letter is changed, because another one follows it."""
    counts = Counter(changed("typos", "As", seed) for seed in range(4000))
    assert set(counts) == {"sA", "AAs", "Ss", "s"}  # beside A on the keyboard is S alone
    assert all(abs(count - 1000) < 4 * math.sqrt(4000 * 3 / 16) for count in counts.values())
    assert {changed("typos", "ds", seed) for seed in range(200)} == {"sd", "dds", "ss", "fs", "s"}


def test_kinds_are_as_frequent_as_asked() -> None:
    noise = parsed("upper=0.3,title=0.5,typos=0.1,no_final_stop=0.9")
    lines, counts = 20_000, Counter[str]()
    for seed in range(lines):
        kinds = drawn(noise, Random(seed))
        assert not {"upper", "title"} <= set(kinds)
        counts.update(kinds)
    for kind, share in noise.items():
        assert abs(counts[kind] - lines * share) < 4 * math.sqrt(lines * share * (1 - share)), kind
    assert drawn(parsed(""), Random(1)) == []
    assert drawn(parsed("typos=1,upper=1"), Random(1)) == ["typos", "upper"]
