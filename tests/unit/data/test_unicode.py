"""Unicode normalisation against SentencePiece and Python."""

from __future__ import annotations

import unicodedata

import pytest
import sentencepiece
from hypothesis import example, given
from hypothesis import strategies as st

from nmt_cli.data import unicode

SPECIAL = "\u00a0\u200b\ufeff\u3000\u0301\u0308\ufb03Ａ…½ª\t\x01\x7f\r  Å\u1100\u1161"
LINES = st.text(st.one_of(st.characters(exclude_categories=["Cs"]), st.sampled_from(SPECIAL + "aé„ß~ ")), max_size=30)


def reference(rule: str, line: str) -> str:
    if rule == "none":
        return line
    if rule in ("nfc", "nfd"):
        return unicodedata.normalize(rule.upper(), line)
    kept = {"add_dummy_prefix": False, "escape_whitespaces": False, "remove_extra_whitespaces": False}
    text = str(sentencepiece.SentencePieceNormalizer(rule_name=rule, **kept).Normalize(line))
    text = text if line[:1].isspace() else text.lstrip(" ")  # spaces that were another character
    return text if line[-1:].isspace() else text.rstrip(" ")


@pytest.mark.parametrize("rule", unicode.RULES)
@given(line=LINES)
@example(line="  two  spaces ")
def test_lines_are_normalised_as_the_libraries_do(rule: str, line: str) -> None:
    assert unicode.normalised([line], rule)[0] == reference(rule, line)


@pytest.mark.parametrize("rule", ["nmt_nfkc", "nfkc"])
def test_no_rule_applies_to_the_lines_that_are_left_alone(rule: str) -> None:
    """A line changes only where the left side of a rule stands in it; none is made of these characters alone."""
    rules = dict(sentencepiece.SentencePieceNormalizer(rule_name=rule).Decompile())
    assert len(rules) > 10_000
    assert not [key for key, value in rules.items() if unicode._unchanged(key) and key != value]


def test_nfc_leaves_them_alone_too() -> None:
    characters = [chr(code) for code in range(0x10000) if unicode._unchanged(chr(code))]
    assert len(characters) > 250
    for character in characters:
        assert unicodedata.normalize("NFC", character) == character
        assert unicodedata.combining(character) == 0
