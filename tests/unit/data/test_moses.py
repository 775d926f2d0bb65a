"""sacremoses, as this project uses it: golden lines, so that a library that changes is noticed."""

from __future__ import annotations

from pathlib import Path

import pytest

from nmt_cli.data.moses import Moses
from nmt_cli.files.text import read_lines

GOLDEN = [
    (
        "en",
        "It's 3.5 % of U.S. GDP (approx.), isn't it?",
        "It 's 3.5 % of U.S. GDP ( approx . ) , isn 't it ?",
        "It's 3.5% of U.S. GDP (approx.), isn't it?",
    ),
    (
        "de",
        "„Äußerst schöne Größe“, sagte er – z. B. 1.234,5 €.",
        '" Äußerst schöne Größe " , sagte er - z. B. 1.234,5 € .',
        '"Äußerst schöne Größe", sagte er - z. B. 1.234,5 €.',
    ),
    ("fr", "L'été n'est-il pas « fini » ?", "L' été n' est-il pas \" fini \" ?", "L'été n'est-il pas \"fini\" ?"),
    ("en", '[c] & "e"', '[ c ] & " e "', '[c] & "e"'),
]


@pytest.mark.parametrize(("language", "line", "tokens", "text"), GOLDEN)
def test_golden_lines(language: str, line: str, tokens: str, text: str) -> None:
    moses = Moses(language)
    assert moses.tokenise(line) == tokens
    assert moses.detokenise(tokens) == text


def test_characters_are_escaped_on_request_only() -> None:
    moses = Moses("en", escape=True)
    tokens = "it &apos;s a &#124; b &#91; c &#93; &lt; d &gt; &amp; &quot; e &quot;"
    assert moses.tokenise('it\'s a | b [c] <d> & "e"') == tokens
    assert moses.detokenise(tokens) == 'it\'s a | b [c] < d > & "e"'
    assert Moses("en").detokenise("&amp;") == "&amp;"


@pytest.mark.parametrize(
    ("line", "tokens"),
    [("", ""), (" ", ""), ("\x85", ""), ("\u2028", ""), ("eins\x85zwei\u2028drei", "eins zwei drei")],
)
def test_white_space(line: str, tokens: str) -> None:
    assert Moses("de").tokenise(line) == tokens


@pytest.mark.parametrize("language", ["en", "de"])
def test_real_sentences_come_back(shared_data: Path, language: str) -> None:
    """Detokenising is a guess, but on plain news text it must nearly always be right."""
    moses = Moses(language)
    folder = shared_data / "wmt" / "en-de"
    lines = [line for line in read_lines(folder / f"newstest2016.{language}") if line.isascii()][:500]
    same = sum(moses.detokenise(moses.tokenise(line)) == " ".join(line.split()) for line in lines)
    assert same / len(lines) > 0.9
