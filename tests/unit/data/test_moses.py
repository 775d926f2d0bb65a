"""sacremoses, as this project uses it: golden lines, so that a library that changes is noticed."""

from __future__ import annotations

import pickle
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import sacremoses
from hypothesis import example, given
from hypothesis import strategies as st

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
    (
        "fr",
        "L'été n'est-il pas « fini » ?",
        "L' été n' est-il pas \" fini \" ?",
        "L'été n'est-il pas \"fini\" ?",
    ),
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


ODD = [
    *(
        "",
        " a  b ",
        "\x01 a",
        " \x01 a \x02. b. c",
        "\x1c\x1d",
        "a\x85b .",
        ".",
        ". .",
        "a .' ",
        "ab.' b.",
        "\xa0%",
    ),
    *(
        "U.S. 3",
        "No. 7 no. x. Y",
        "z.B. 5 . . .... a..b... 1,000,000,x,,y",
        "'' \"a,\" \"b.\" ``c'' d's 's 5's '5",
    ),
    *(
        "a ( b ) : c ; 5 % ( d ), e",
        "„a“ ‚b’ ‘c’ d’e « f » 3\xa0000 nº\xa04 5\xa0ºC \xa0? \xa0!",
        "你好, 世界. (한국어) ﾊ",
    ),
]


@cache
def programs(language: str) -> tuple[Any, Any, dict[bool, Moses]]:
    our_moses = {escape: Moses(language, escape) for escape in (False, True)}
    return sacremoses.MosesPunctNormalizer(language), sacremoses.MosesTokenizer(language), our_moses


def assert_as_sacremoses(language: str, lines: list[str], escape: bool = False) -> None:
    normaliser, tokeniser, our_moses = programs(language)
    moses = our_moses[escape]
    for line in lines:
        expected = tokeniser.tokenize(normaliser.normalize(line), return_str=True, escape=escape)
        assert moses.tokenise(line) == expected


@pytest.mark.parametrize(
    ("language", "escape"),
    [("en", False), ("en", True), ("de", False), ("fr", True), ("cs", False), ("zh", False)],
)
def test_odd_lines_are_those_of_sacremoses(language: str, escape: bool) -> None:
    assert_as_sacremoses(language, ODD, escape)


@given(st.text("ab1.,'\" :)(’«»„%\xa0\x02\u3000-€A", max_size=12))
def test_any_line_is_that_of_sacremoses(line: str) -> None:
    assert_as_sacremoses("en", [line])
    assert_as_sacremoses("fr", [line])


WORDS = (
    "a",
    "5",
    "No.",
    "B.c.",
    "3.5.",
    "5,",
    ",5",
    "it's",
    "'tis",
    "a'",
    ".'",
    ".",
    "...",
    "a...",
    "(b).",
    "DOTMULTI",
    "\x02",
    "\x02b",
    "é",
)


@given(st.lists(st.sampled_from(WORDS), max_size=6))
@example(["a.", "\x02b"])
@example(["5", ",5"])
def test_any_line_of_difficult_words_is_that_of_sacremoses(words: list[str]) -> None:
    for language in ("en", "fr", "cs"):
        assert_as_sacremoses(language, [" ".join(words)])


@pytest.mark.parametrize(
    ("directory", "language"), [("en-de", "en"), ("en-de", "de"), ("en-fr", "fr")]
)
def test_real_lines_are_those_of_sacremoses(
    shared_data: Path, directory: str, language: str
) -> None:
    lines = list(read_lines(shared_data / "wmt" / directory / f"newstest2009.{language}"))
    assert_as_sacremoses(language, lines[::10])


def test_a_copy_tokenises() -> None:
    moses = Moses("en")
    moses.tokenise("It ends.")
    assert pickle.loads(pickle.dumps(moses)).tokenise("It ends.") == "It ends ."


@pytest.mark.parametrize("language", ["en", "de"])
def test_real_sentences_come_back(shared_data: Path, language: str) -> None:
    """Detokenising is a guess, but on plain news text it must nearly always be right."""
    moses = Moses(language)
    folder = shared_data / "wmt" / "en-de"
    lines = [line for line in read_lines(folder / f"newstest2016.{language}") if line.isascii()][
        :500
    ]
    same = sum(moses.detokenise(moses.tokenise(line)) == " ".join(line.split()) for line in lines)
    assert same / len(lines) > 0.9
