"""Prefixes of lines as ids and open text, in every kind of vocabulary."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt_cli.data.subwords import KINDS, LearningOptions, learn
from nmt_cli.data.vocabulary import UNKNOWN_TEXT, Continuations, Vocabulary
from nmt_cli.interfaces import EOS, UNK

LINES = ["Ein Haus am See", "Ein Hausboot liegt da", "Der Hauself singt laut", "zwei Hunde laufen", "我们去学校"]
VOCABULARIES = {kind: learn(LINES * 3, LearningOptions(kind, 34 if kind == "unigram" else 55)) for kind in KINDS}
WITH_BYTES = {
    kind: learn(LINES * 3, LearningOptions(kind, 290, byte_fallback=True))
    for kind in ("bpe", "unigram", "wordpiece", "character")
}
every_kind = pytest.mark.parametrize("vocabulary", VOCABULARIES.values(), ids=VOCABULARIES.keys())
letters = st.text("Ein HausbootSe我们", max_size=40).map(str.lstrip)


def some_output(vocabulary: Vocabulary, prefix: str, seed: int) -> list[int]:
    """The ids of an output that begins as it must and goes on at random."""
    source = random.Random(seed)
    ids, rest = vocabulary.encode_prefix(prefix)
    while rest:
        choices = vocabulary.continuations.of(rest)
        token = source.choice(sorted(choices))
        ids, rest = [*ids, token], choices[token]
    return ids + [source.randrange(EOS + 1, len(vocabulary)) for _ in range(source.randrange(3))]


@pytest.mark.parametrize("kind", ["bpe", "unigram", "wordpiece", "character"])
@given(prefix=letters, seed=st.integers(0, 10**6))
def test_every_output_begins_with_the_letters_of_its_prefix(kind: str, prefix: str, seed: int) -> None:
    for vocabulary in (VOCABULARIES[kind], WITH_BYTES[kind]):
        line = vocabulary.decode(some_output(vocabulary, prefix, seed))
        assert (line + " ").startswith(prefix)  # the last piece may be a space alone


@given(prefix=letters, seed=st.integers(0, 10**6))
def test_every_output_of_byte_fallback_begins_with_characters_that_were_never_seen(prefix: str, seed: int) -> None:
    for vocabulary in WITH_BYTES.values():
        line = vocabulary.decode(some_output(vocabulary, f"{prefix}é☃{prefix}", seed))
        assert (line + " ").startswith(f"{prefix}é☃{prefix}")


@pytest.mark.parametrize("kind", ["bpe", "unigram", "wordpiece"])
def test_a_word_that_has_begun_can_become_any_word_that_begins_so(kind: str) -> None:
    vocabulary = VOCABULARIES[kind]
    assert vocabulary.encode_prefix("Ein Ha") == (vocabulary.encode("Ein"), "▁Ha")
    pieces = {vocabulary.pieces([i])[0]: rest for i, rest in vocabulary.continuations.of("▁Ha").items()}
    assert all(("▁Ha" + "us").startswith(piece[:3]) for piece in pieces)
    assert all(rest == "▁Ha"[len(piece) :] for piece, rest in pieces.items())
    assert any(rest == "" for rest in pieces.values()) or kind == "unigram"


@every_kind
def test_a_space_at_the_end_ends_the_word(vocabulary: Vocabulary) -> None:
    prefix = vocabulary.encode_prefix("Ein Haus ")
    assert prefix == (vocabulary.encode("Ein Haus"), "▁")
    found = vocabulary.continuations.of("▁")
    assert set(found.values()) == {""}
    assert {i for i, text in enumerate(vocabulary.texts) if text.startswith("▁")} == found.keys()
    assert not set(range(EOS + 1)) & found.keys()


def test_whole_tokens_are_completed() -> None:
    vocabulary = VOCABULARIES["none"]
    ids, rest = vocabulary.encode_prefix("Ein Haus")
    assert sorted(vocabulary.pieces(list(vocabulary.continuations.of(rest)))) == ["Haus", "Hausboot", "Hauself"]
    assert vocabulary.pieces(ids) == ["Ein"]
    assert vocabulary.encode_prefix("Ein Katz") == ([*vocabulary.encode("Ein"), UNK], "")


@every_kind
def test_unknown_characters_are_the_unknown_word(vocabulary: Vocabulary) -> None:
    ids, rest = vocabulary.encode_prefix("Ein Ha☃")
    assert UNK in ids
    assert rest == ""
    assert vocabulary.decode(ids).rstrip().endswith(UNKNOWN_TEXT.strip())


def test_only_the_end_of_a_long_text_without_spaces_is_open() -> None:
    vocabulary = VOCABULARIES["bpe"]
    ids, rest = vocabulary.encode_prefix("我们去学校" * 100)
    assert 0 < len(rest) <= 32
    assert vocabulary.decode(ids) + rest == "我们去学校" * 100


def test_pieces_that_lead_nowhere_are_left_out() -> None:
    found = Continuations(["", "a", "ab", "b", "c", "cdx"])
    assert found.of("ab") == {1: "b", 2: ""}
    assert found.of("cd") == {5: ""}  # not c, since nothing begins with d
    assert found.of("abd") == {}
    assert found.of("acdx") == {1: "cdx"}
