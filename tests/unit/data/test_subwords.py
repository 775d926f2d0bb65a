"""Every kind of vocabulary gives back its input, and lets no text pass for a special symbol."""

from __future__ import annotations

import os
import pickle
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt_cli.data import subwords
from nmt_cli.data.subwords import LearningOptions, WordPieces
from nmt_cli.data.vocabulary import UNKNOWN_TEXT, Vocabulary
from nmt_cli.errors import DataError, UsageError
from nmt_cli.interfaces import BOS, EOS, PAD, SPECIAL_SYMBOLS, UNK

LETTERS = "abcdeäß <>/s0x\t\x85\u2028\u00a0\u200b\u0301😀中\x01⁇"
"""What the vocabularies below have seen: letters of the special symbols, and odd white space."""

LINES = [
    *(
        "the lower the newer",
        "the lowest abode is widest",
        " a  bad  cab ",
        "deäß <s> </s> <unk> <pad> <0x41>",
    ),
    *(f"x{character}x" for character in LETTERS),
    *(
        (
            "lower lowest lowered newer newest newly wider widest widely bidder bide abide abode"
        ).split()
    ),
    *(
        (
            "slow slowly slower slowest sew sewed sewn seed seeded needle needed based abased "
            "header"
        ).split()
    ),
] * 3

LOSSLESS = [
    LearningOptions(kind, size, byte_fallback)
    for kind in ("bpe", "unigram", "wordpiece")
    for size, byte_fallback in ((60, False), (316, True))
] + [LearningOptions("character", 42), LearningOptions("character", 296, byte_fallback=True)]
known_text = st.text(LETTERS, max_size=30)
any_text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\n"), max_size=30)


@pytest.fixture(
    scope="module", params=LOSSLESS, ids=lambda o: f"{o.kind}{'-bytes' if o.byte_fallback else ''}"
)
def lossless(request: pytest.FixtureRequest) -> Vocabulary:
    return subwords.learn(LINES, request.param)


def special(ids: list[int]) -> set[int]:
    return set(ids) & {PAD, UNK, BOS, EOS}


@given(text=known_text)
def test_known_text_comes_back(lossless: Vocabulary, text: str) -> None:
    ids = lossless.encode(text)
    assert lossless.decode(ids) == text
    assert not special(ids)
    assert max(ids, default=0) < len(lossless)


@given(text=any_text)
def test_unknown_characters_become_bytes_or_one_unknown(lossless: Vocabulary, text: str) -> None:
    expected = text.replace("\u2581", " ")
    if len(lossless) < 256:
        known = "".join(
            piece for piece in lossless.pieces(range(4, len(lossless))) if len(piece) == 1
        )
        expected = re.sub(f"[^ {re.escape(known)}]+", UNKNOWN_TEXT, expected)
    assert lossless.decode(lossless.encode(text)) == expected


def test_special_symbols_have_their_ids_and_no_text(lossless: Vocabulary) -> None:
    assert tuple(lossless.pieces([0, 1, 2, 3])) == SPECIAL_SYMBOLS
    assert lossless.decode([BOS, *lossless.encode("the lower"), EOS, PAD, PAD]) == "the lower"
    for wrong in (len(lossless), -1):
        for method in (lossless.decode, lossless.pieces):
            with pytest.raises(DataError, match=f"id {wrong} .* {len(lossless)} entries"):
                method([wrong])


def test_saved_vocabulary_is_the_same(lossless: Vocabulary, tmp_path: Path) -> None:
    loaded = subwords.load(tmp_path, subwords.save(lossless, tmp_path, "joint"))
    for line in [*LINES, "unseen Ж"]:
        assert loaded.encode(line) == lossless.encode(line)
    assert loaded.serialise() == lossless.serialise()
    assert loaded.kind == lossless.kind
    copied = pickle.loads(pickle.dumps(lossless))
    assert copied.encode("the lower") == lossless.encode("the lower")


def test_changed_or_missing_file_is_refused(lossless: Vocabulary, tmp_path: Path) -> None:
    description = subwords.save(lossless, tmp_path, "joint")
    path = tmp_path / description["file"]
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(DataError, match="has changed"):
        subwords.load(tmp_path, description)
    os.truncate(path, 6 << 30)
    with pytest.raises(DataError, match="6,442,450,944 bytes"):
        subwords.load(tmp_path, description)
    path.unlink()
    with pytest.raises(DataError, match="cannot read"):
        subwords.load(tmp_path, description)


@pytest.mark.parametrize("options", LOSSLESS, ids=lambda o: f"{o.kind}-{o.size}")
def test_learning_gives_the_size_and_the_same_bytes_each_time(options: LearningOptions) -> None:
    first = subwords.learn(iter(LINES), options)
    assert len(first) == options.size
    assert first.serialise() == subwords.learn(LINES, options).serialise()


@pytest.mark.parametrize("kind", ["bpe", "unigram", "wordpiece"])
@pytest.mark.parametrize("size", [9999, 20])
def test_an_impossible_size_is_an_error_with_the_limit(kind: str, size: int) -> None:
    with pytest.raises(UsageError, match=rf"--vocab-size {size} is.*--vocab-size (\d+)") as caught:
        subwords.learn(LINES, LearningOptions(kind, size))
    limit = int(str(caught.value).split("--vocab-size ")[2].split()[0].rstrip(","))
    assert len(subwords.learn(LINES, LearningOptions(kind, limit))) == limit
    with pytest.raises(UsageError):
        subwords.learn(LINES, LearningOptions(kind, limit + 1 if size > limit else limit - 1))


def test_characters_are_all_there_or_the_most_frequent_ones() -> None:
    every = subwords.learn(["b a", "babä"], LearningOptions("character", 9999))
    assert every.pieces(every.encode("bä a")) == ["▁", "b", "ä", "▁", "a"]
    assert len(every) == len(SPECIAL_SYMBOLS) + 4
    few = subwords.learn(["b a", "babä"], LearningOptions("character", 7))
    assert set(few.pieces(range(4, 7))) == {"▁", "b", "a"}
    assert few.encode("bä a") == [*few.encode("b"), UNK, *few.encode("a")]


def test_errors_of_the_text_are_raised() -> None:
    def lines() -> Iterator[str]:
        yield "a"
        raise DataError("file:2: broken")

    with pytest.raises(DataError, match="file:2: broken"):
        subwords.learn(lines(), LearningOptions("bpe", 100))
    with pytest.raises(DataError, match="no text"):
        subwords.learn([], LearningOptions("bpe", 100))


def test_a_character_that_sentencepiece_reserves_costs_only_itself() -> None:
    """SentencePiece's trainer leaves out every line with U+2585.

    The rest of such a line is learned all the same.
    """
    vocabulary = subwords.learn([*LINES, "Ж\u2585Ж"], LearningOptions("bpe", 61))
    assert UNK not in vocabulary.encode("Ж")


@pytest.mark.parametrize("kind", subwords.KINDS)
@pytest.mark.parametrize("name", [*SPECIAL_SYMBOLS, "<0x4F>"])
def test_names_of_special_symbols_are_text(kind: str, name: str) -> None:
    """SentencePiece's trainer cuts its own pieces out of the text, and would not see these."""
    line = f"{name} ab {name} ba a{name}"
    vocabulary = subwords.learn([line] * 5, LearningOptions(kind, 4 + len(set(line))))
    assert not special(vocabulary.encode(line))
    assert vocabulary.decode(vocabulary.encode(line)) == line


@pytest.mark.parametrize("kind", ["bpe", "unigram", "character", "wordpiece"])
def test_names_of_bytes_are_text_too(kind: str) -> None:
    line = "ab <0x4F> ba"
    vocabulary = subwords.learn(
        [line] * 5, LearningOptions(kind, 4 + 256 + len(set(line)), byte_fallback=True)
    )
    assert set("<0x4F>") <= set(vocabulary.texts)
    assert vocabulary.decode(vocabulary.encode(line)) == line


def test_word_pieces_are_the_longest_that_match() -> None:
    """Merging would differ: 'ab', 'c' and 'd' are pieces, but the longest match is 'abc'."""
    vocabulary = WordPieces(
        [*SPECIAL_SYMBOLS, "▁", "▁a", "▁ab", "▁abc", "bcd", "a", "b", "c", "d", "ab", "cd"]
    )
    assert vocabulary.pieces(vocabulary.encode("abcd ab dabcd")) == [
        "▁abc",
        "d",
        "▁ab",
        "▁",
        "d",
        "ab",
        "cd",
    ]
    with pytest.raises(DataError, match="<pad>"):
        WordPieces(["a", "b"])


def test_whole_tokens() -> None:
    vocabulary = subwords.learn(["b a b", "c a b  "], LearningOptions("none"))
    assert vocabulary.pieces(range(7)) == [*SPECIAL_SYMBOLS, "b", "a", "c"]
    assert vocabulary.encode("a b  c <pad> d") == [5, 4, 6, UNK, UNK]
    assert vocabulary.decode([BOS, 5, 4, UNK, EOS]) == "a b \u2047"
    assert len(subwords.learn(["b a b", "c a b"], LearningOptions("none", 6))) == 6


@given(st.lists(st.text("ab()\u00a0\x85", min_size=1, max_size=4), min_size=1, max_size=10))
def test_whole_tokens_come_back(tokens: list[str]) -> None:
    line = " ".join([*SPECIAL_SYMBOLS, *tokens])
    vocabulary = subwords.learn([line], LearningOptions("none"))
    assert vocabulary.decode(vocabulary.encode(line)) == line
    assert not special(vocabulary.encode(line))


def test_long_lines_come_back(lossless: Vocabulary) -> None:
    for unit in ("x", "the ", "Ж"):
        text = unit * (50_000 // len(unit))
        known = unit != "Ж" or len(lossless) > 256
        assert lossless.decode(lossless.encode(text)) == (text if known else UNKNOWN_TEXT)
