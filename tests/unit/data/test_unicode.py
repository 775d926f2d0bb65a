"""Unicode normalisation against SentencePiece and Python."""

from __future__ import annotations

import time
import unicodedata

import pytest
import regex
import sentencepiece
from hypothesis import example, given
from hypothesis import strategies as st

from nmt_cli.data import unicode

SPECIAL = "\u00a0\u200b\ufeff\u3000\u0301\u0308\ufb03Ａ…½ª\t\x01\x7f\r  Å\u1100\u1161"
LINES = st.text(
    st.one_of(st.characters(exclude_categories=["Cs"]), st.sampled_from(SPECIAL + "aé„ß~ ")),
    max_size=30,
)


def by_sentencepiece(rule: str, line: str) -> str:
    settings = {
        "add_dummy_prefix": False,
        "escape_whitespaces": False,
        "remove_extra_whitespaces": False,
    }
    return str(sentencepiece.SentencePieceNormalizer(rule_name=rule, **settings).Normalize(line))


def reference(rule: str, line: str) -> str:
    """Version 1."""
    if rule == "none":
        return line
    if rule in ("nfc", "nfd"):
        return unicodedata.normalize(rule.upper(), line)
    text = by_sentencepiece(rule, line)
    text = text if line[:1].isspace() else text.lstrip(" ")  # spaces that were another character
    return text if line[-1:].isspace() else text.rstrip(" ")


@pytest.mark.parametrize("rule", unicode.RULES)
@given(line=LINES)
@example(line="  two  spaces ")
def test_version_1_is_as_the_libraries_are(rule: str, line: str) -> None:
    """Data and checkpoints of nmt 1.0 keep their ids."""
    assert unicode.normalised([line], rule, 1)[0] == reference(rule, line)
    if rule in ("nfc", "nfd", "none"):
        assert unicode.normalised([line], rule)[0] == reference(rule, line)


IGNORABLE = "".join(
    regex.findall(
        r"[\p{Default_Ignorable_Code_Point}\0-\x1f\x7f]", "".join(map(chr, range(0x110000)))
    )
)
WHITE = "\t\n\v\f\r\u3164\uffa0"  # blank, but with a width: a space
UNSEEN = "".join(set(IGNORABLE) - set(WHITE) - set("\u180b\u180c\u180d\u180e\u180f\u200c\u200d"))
BLANK = WHITE + " \u00a0\u1680\u2007\u2028\u2029\u202f\u205f\u2581\u2800\u3000"
SEEN = st.characters(
    exclude_categories=["Cs", "Cc", "Z"],
    exclude_characters=IGNORABLE + "\u2581\u2800\ufffd\U0001f3f4",
)
WORDS = st.lists(st.text(SEEN, min_size=1, max_size=6), max_size=5)


@pytest.mark.parametrize("rule", ["nmt_nfkc", "nfkc"])
@given(words=WORDS, data=st.data())
def test_what_nobody_sees_changes_nothing(rule: str, words: list[str], data: st.DataObject) -> None:
    line = " ".join(words)
    unseen = st.text(UNSEEN, max_size=3)
    blank = st.builds("".join, st.tuples(unseen, st.text(BLANK, min_size=1, max_size=3), unseen))
    odd = data.draw(blank).join(
        "".join(data.draw(unseen) + character for character in word) for word in words
    )
    odd = data.draw(st.just("") | blank) + odd + data.draw(unseen | blank)
    assert unicode.normalised([odd], rule) == unicode.normalised([line], rule)


def test_invisible_characters_alone_are_nothing() -> None:
    assert len(UNSEEN) > 4000
    assert not any(unicode.normalised(UNSEEN, "nfkc"))


def test_controls_of_latin_1_are_the_letters_of_windows_1252() -> None:
    """Text of Windows that was read as Latin-1: in WMT's news, all such controls are."""
    line = "\x84Don\x92t\x93 \x96 1\x85 \x81\x8d\x8f\x90\x9d"
    assert unicode.normalised([line], "nmt_nfkc") == ["„Don’t“ – 1..."]


JOINED = {
    "Persian": "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",
    "with a vowel mark": "\u0645\u064e\u200c\u0646",
    "a half form": "\u0915\u094d\u200d\u0937",
    "a virama that is seen": "\u0915\u094d\u200c\u0937",
    "before a virama": "\u09b0\u200d\u09cd\u09af",
    "Mongolian": "\u182d\u180b\u1820\u180e\u1820",
    "emoji": "\U0001f469\U0001f3fd\u200d\U0001f680",
}


@pytest.mark.parametrize("name", JOINED)
def test_joiners_stay_where_they_are_seen(name: str) -> None:
    assert unicode.normalised([JOINED[name]], "nmt_nfkc") == [JOINED[name]]


@pytest.mark.parametrize("rule", ["nmt_nfkc", "nfkc"])
def test_the_vowel_sign_am_is_one_character(rule: str) -> None:
    """Unicode's NFKC takes it apart, and Thai and Lao are never written so."""
    whole, parts = "น้ำ\u0e97\u0eb3", "น้ํา\u0e97\u0ecd\u0eb2"
    assert unicodedata.normalize("NFKC", whole) == parts
    assert unicode.normalised([whole, parts], rule) == [whole, whole]


def test_flags_of_parts_of_a_country_stay() -> None:
    flag = "\U0001f3f4\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f"
    assert unicode.normalised([f"{flag} {flag[1:]}x"], "nmt_nfkc") == [f"{flag} x"]


@pytest.mark.parametrize(
    "line",
    [
        "Auf\u200clage",
        "a\u200d",
        "\u0628\u200c .",
        "\u0627\u200c\u0628",
        "\u0628\u200c\u200dx",
        "a\u180eb",
    ],
)
def test_other_joiners_go(line: str) -> None:
    (text,) = unicode.normalised([line], "nmt_nfkc")
    assert text == regex.sub("[\u180b-\u180f\u200c\u200d]", "", line)


def test_of_several_joiners_the_first_stays() -> None:
    assert unicode.normalised(["\u0628\u200c\u200d\u200c\u0646"], "nmt_nfkc") == [
        "\u0628\u200c\u0646"
    ]


@pytest.mark.parametrize("repeated", ["\u0301", "\u180b", "\u200d", "\u0651\u200d"])
def test_a_long_line_of_marks_takes_no_longer_than_its_length(repeated: str) -> None:
    """The time of 100,000 marks was four minutes. It is 0.1 s."""
    line = "e" + repeated * 100_000
    start = time.process_time()
    unicode.normalised([line], "nmt_nfkc")
    assert time.process_time() - start < 20


TWICE = (
    "aé„~ "
    "\t\u00a0\u200b\u3000\u2581\u00ad\ufe0f\u200c\u200d\u180b\u182d\u0645\u0627\u064e\u0915\u094d😀Ａ…"
)


@given(line=st.text(TWICE, max_size=20))
def test_normalising_twice_is_normalising_once(line: str) -> None:
    """SentencePiece's own tables are not so for a ligature with a mark."""
    once = unicode.normalised([line], "nmt_nfkc")
    assert unicode.normalised(once, "nmt_nfkc") == once


@pytest.mark.parametrize("rule", ["nmt_nfkc", "nfkc"])
def test_no_rule_applies_to_the_lines_that_are_left_alone(rule: str) -> None:
    """A line changes only where the left side of a rule stands in it.

    None is made of these characters alone.
    """
    rules = dict(sentencepiece.SentencePieceNormalizer(rule_name=rule).Decompile())
    assert len(rules) > 10_000
    assert not [key for key, value in rules.items() if unicode._unchanged(key) and key != value]


def test_nfc_leaves_them_alone_too() -> None:
    characters = [chr(code) for code in range(0x10000) if unicode._unchanged(chr(code))]
    assert len(characters) > 250
    for character in characters:
        assert unicodedata.normalize("NFC", character) == character
        assert unicodedata.combining(character) == 0
