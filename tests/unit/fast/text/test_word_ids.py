"""Lines encoded by a table of words are those encoded one by one."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt_cli.data import subwords
from nmt_cli.data.subwords import LearningOptions
from nmt_cli.data.vocabulary import Vocabulary
from nmt_cli.fast.text import word_ids
from nmt_cli.fast.text.word_ids import WordIds

LINES = ["ab abc abcd", "  bc d", "cab  dab ", "a", "abcabc dcba"] * 3


def assert_lines(vocabulary: Vocabulary, lines: list[str]) -> None:
    ids, lengths = vocabulary.encode_lines(lines)
    expected = [vocabulary.encode(line) for line in lines]
    assert lengths.tolist() == [len(line) for line in expected]
    assert ids.tolist() == [i for line in expected for i in line]


VOCABULARIES = [
    subwords.learn(LINES, LearningOptions(kind, size, bytes_))
    for kind, size, bytes_ in [
        ("bpe", 14, False),
        ("bpe", 270, True),
        ("unigram", 12, False),
        ("none", 20, False),
    ]
]


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
@given(
    blocks=st.lists(st.lists(st.text("abcdx \u2581\u00a0\t", max_size=12), max_size=4), max_size=3)
)
def test_as_one_by_one(vocabulary: Vocabulary, blocks: list[list[str]]) -> None:
    for lines in blocks:
        assert_lines(vocabulary, lines)


def test_the_table_is_for_bpe(monkeypatch: pytest.MonkeyPatch) -> None:
    bpe, _, unigram, _ = VOCABULARIES
    assert word_ids.encoder(bpe)
    assert word_ids.encoder(unigram) is None
    monkeypatch.setenv("NMT_FAST", "0")
    without = pickle.loads(pickle.dumps(bpe))
    assert without._faster is None
    assert_lines(without, LINES)


def test_a_full_table_is_emptied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(word_ids, "_LARGEST_TABLE", 5)
    for _ in range(4):
        assert_lines(VOCABULARIES[0], LINES)


def test_a_word_is_encoded_once() -> None:
    asked: list[str] = []

    def encode(words: list[str]) -> list[list[int]]:
        asked.extend(words)
        return [[len(word)] * 2 for word in words]

    table = WordIds(encode, 9)
    ids, lengths = table.encode(["a bb", "", "bb", " "])
    assert (ids.tolist(), lengths.tolist()) == ([1, 1, 2, 2, 2, 2, 9, 9], [4, 0, 2, 2])
    ids, _ = table.encode(["ccc bb"])
    assert ids.tolist() == [3, 3, 2, 2]
    assert asked == ["a", "bb", "ccc"]
    assert (ids.dtype, lengths.dtype) == (np.uint32, np.int64)


def test_a_copy_encodes() -> None:
    VOCABULARIES[0].encode_lines(LINES)
    assert_lines(pickle.loads(pickle.dumps(VOCABULARIES[0])), LINES)


def test_a_vocabulary_without_spaces_is_not_cut_into_words() -> None:
    lines = ["Ж a a", "a a", "abab Жab"]
    vocabulary = subwords.learn(["ab"], LearningOptions("bpe", 7, False))
    assert_lines(vocabulary, lines)
