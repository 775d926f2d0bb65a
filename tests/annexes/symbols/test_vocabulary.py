"""Symbols are one id each, and the text beside them has the ids of a line."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt_cli.annexes.symbols.task import check_tag
from nmt_cli.annexes.symbols.vocabulary import Symbols, WithSymbols, symbols_of
from nmt_cli.data import subwords
from nmt_cli.data.subwords import LearningOptions
from nmt_cli.errors import UsageError

NAMES = ["<a>", "<ab>", "<2>"]
TEXT = ["the dog runs to the dogs", "ab ba 2 de <", "a house, and houses"]
KINDS = ("bpe", "unigram", "wordpiece", "character", "none")
VOCABULARIES = {kind: subwords.learn(TEXT * 20, LearningOptions(kind, 26)) for kind in KINDS}

words = st.text("abdehostu <2", max_size=12).map(str.strip)
lines = st.lists(st.one_of(words, st.sampled_from(NAMES)), max_size=6)


@pytest.mark.parametrize("kind", KINDS)
@given(st.lists(lines, max_size=4))
def test_text_beside_symbols_has_the_ids_of_a_line(kind: str, parts: list[list[str]]) -> None:
    base = VOCABULARIES[kind]
    vocabulary = WithSymbols(base, Symbols(NAMES))
    text = [" ".join(part) for part in parts]
    ids, lengths = vocabulary.encode_lines(text)
    expected = []
    for line in text:
        pieces = vocabulary.symbols.split(line)
        assert set(pieces[1::2]) <= set(NAMES)
        assert not any(name in piece for piece in pieces[::2] for name in NAMES)
        text_ids = [base.encode(piece) for piece in pieces]
        text_ids[1::2] = [[len(base) + NAMES.index(name)] for name in pieces[1::2]]
        expected.append([i for ids_of_piece in text_ids for i in ids_of_piece])
    assert lengths.tolist() == list(map(len, expected))
    assert ids.tolist() == [i for ids_of_piece in expected for i in ids_of_piece]
    assert [vocabulary.encode(line) for line in text] == expected


@pytest.mark.parametrize("kind", KINDS)
def test_symbols_are_decoded_as_words(kind: str) -> None:
    vocabulary = WithSymbols(VOCABULARIES[kind], Symbols(NAMES))
    ids = vocabulary.encode("<ab>the dog <a> <a>  runs<2>")
    assert [i - len(vocabulary.words) for i in ids if i >= len(vocabulary.words)] == [1, 0, 0, 2]
    assert vocabulary.decode(ids) == "<ab> the dog <a> <a> runs <2>"
    assert vocabulary.pieces(ids[:1]) == ["<ab>"]
    assert vocabulary.decode(vocabulary.encode("the dog")) == "the dog"
    assert len(vocabulary.texts) == len(vocabulary) == len(vocabulary.words) + 3
    assert pickle.loads(pickle.dumps(vocabulary)).encode("<a> the dog") == vocabulary.encode(
        "<a> the dog"
    )


def test_only_text_is_changed() -> None:
    changed = Symbols(NAMES).changed(
        ["The <ab> Dog", "<a>", "Dogs", ""], lambda lines: [line.upper() for line in lines]
    )
    assert changed == ["THE <ab> DOG", "<a>", "DOGS", ""]
    (lower,) = Symbols(NAMES).changed(
        ["<A> dog <a>"], lambda lines: [line.lower() for line in lines]
    )
    assert lower == "< a> dog <a>"


@pytest.mark.parametrize("names", ["<a>,<a>", "a b", "<a b>", "<a>,", "a", "</s>", "\u2581"])
def test_what_cannot_be_a_symbol(names: str) -> None:
    with pytest.raises(UsageError, match=r"--symbols: .*; give distinct names"):
        symbols_of(names)


def test_a_tag_is_a_symbol() -> None:
    check_tag("<a> <2>", NAMES, "")
    check_tag("", [], "")
    with pytest.raises(
        UsageError,
        match=r"--tag <b>: .*<a>, <ab>, <2>; .*--symbols",
    ):
        check_tag("<a> <b>", NAMES, "--tag <b>")
    with pytest.raises(UsageError, match="There are none"):
        check_tag("<a>", [], "x")


def test_segmentations_are_drawn_beside_symbols() -> None:
    base = VOCABULARIES["bpe"]
    vocabulary = WithSymbols(base, Symbols(NAMES))
    texts = []

    def make(words: Any) -> Any:
        assert words is base
        return lambda text, random: texts.append(text) or words.encode(text)[: random.randint(1, 9)]

    drawn = vocabulary.sampler(make)("<a> the dogs <2> a house", Random(1))
    assert texts == ["", "the dogs", "a house"]
    lengths = Random(1)
    expected = [base.encode(text)[: lengths.randint(1, 9)] for text in texts]
    assert drawn == [len(base), *expected[1], len(base) + 2, *expected[2]]


def test_threads_encode_the_same() -> None:
    vocabulary = WithSymbols(VOCABULARIES["bpe"], Symbols(NAMES))
    lines = [f"<a> the dog {number} runs to houses <2>" for number in range(300)] * 2
    expected = list(map(vocabulary.encode, lines))
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(vocabulary.encode, lines)) == expected
