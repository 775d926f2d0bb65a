"""Prefixes of lines as ids and open text, in every kind of vocabulary."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from searches import SOURCES, ngrams, nothing, outputs, searches

from nmt_cli.annexes.search import prefixes as module
from nmt_cli.annexes.search.ngrams import NoRepeatedNgrams
from nmt_cli.annexes.search.prefixes import (
    FREE,
    BeginsWith,
    Continuations,
    Prefix,
    continuations,
    encode_text,
)
from nmt_cli.annexes.search.settings import PrefixConfig
from nmt_cli.data.subwords import KINDS, LearningOptions, learn
from nmt_cli.data.vocabulary import UNKNOWN_TEXT, Vocabulary
from nmt_cli.decoding.beam_search import beam_search
from nmt_cli.decoding.constraints import AllOf
from nmt_cli.decoding.engine import Request
from nmt_cli.decoding.options import SearchSettings, TranslateOptions
from nmt_cli.interfaces import BOS, EOS, PAD, UNK, Hypothesis

seeds = st.integers(0, 10**6)

LINES = [
    "Ein Haus am See",
    "Ein Hausboot liegt da",
    "Der Hauself singt laut",
    "zwei Hunde laufen",
    "我们去学校",
]
VOCABULARIES = {
    kind: learn(LINES * 3, LearningOptions(kind, 34 if kind == "unigram" else 55)) for kind in KINDS
}
WITH_BYTES = {
    kind: learn(LINES * 3, LearningOptions(kind, 290, byte_fallback=True))
    for kind in ("bpe", "unigram", "wordpiece", "character")
}
every_kind = pytest.mark.parametrize("vocabulary", VOCABULARIES.values(), ids=VOCABULARIES.keys())
letters = st.text("Ein HausbootSe我们", max_size=40).map(str.lstrip)


def some_output(vocabulary: Vocabulary, prefix: str, seed: int) -> list[int]:
    """The ids of an output that begins as it must and goes on at random."""
    source = random.Random(seed)
    ids, rest = encode_text(vocabulary, prefix)
    while rest:
        choices = continuations(vocabulary).of(rest)
        token = source.choice(sorted(choices))
        ids, rest = [*ids, token], choices[token]
    return ids + [source.randrange(EOS + 1, len(vocabulary)) for _ in range(source.randrange(3))]


@pytest.mark.parametrize("kind", ["bpe", "unigram", "wordpiece", "character"])
@given(prefix=letters, seed=st.integers(0, 10**6))
def test_every_output_begins_with_the_letters_of_its_prefix(
    kind: str, prefix: str, seed: int
) -> None:
    for vocabulary in (VOCABULARIES[kind], WITH_BYTES[kind]):
        line = vocabulary.decode(some_output(vocabulary, prefix, seed))
        assert (line + " ").startswith(prefix)  # the last piece may be a space alone


@given(prefix=letters, seed=st.integers(0, 10**6))
def test_every_output_of_byte_fallback_begins_with_characters_that_were_never_seen(
    prefix: str, seed: int
) -> None:
    for vocabulary in WITH_BYTES.values():
        line = vocabulary.decode(some_output(vocabulary, f"{prefix}é☃{prefix}", seed))
        assert (line + " ").startswith(f"{prefix}é☃{prefix}")


@pytest.mark.parametrize("kind", ["bpe", "unigram", "wordpiece"])
def test_a_word_that_has_begun_can_become_any_word_that_begins_so(kind: str) -> None:
    vocabulary = VOCABULARIES[kind]
    assert encode_text(vocabulary, "Ein Ha") == (vocabulary.encode("Ein"), "▁Ha")
    pieces = {
        vocabulary.pieces([i])[0]: rest for i, rest in continuations(vocabulary).of("▁Ha").items()
    }
    assert all(("▁Ha" + "us").startswith(piece[:3]) for piece in pieces)
    assert all(rest == "▁Ha"[len(piece) :] for piece, rest in pieces.items())
    assert any(rest == "" for rest in pieces.values()) or kind == "unigram"


@every_kind
def test_a_space_at_the_end_ends_the_word(vocabulary: Vocabulary) -> None:
    prefix = encode_text(vocabulary, "Ein Haus ")
    assert prefix == (vocabulary.encode("Ein Haus"), "▁")
    allowed = continuations(vocabulary).of("▁")
    assert set(allowed.values()) == {""}
    assert {i for i, text in enumerate(vocabulary.texts) if text.startswith("▁")} == allowed.keys()
    assert not set(range(EOS + 1)) & allowed.keys()


def test_whole_tokens_are_completed() -> None:
    vocabulary = VOCABULARIES["none"]
    ids, rest = encode_text(vocabulary, "Ein Haus")
    assert sorted(vocabulary.pieces(list(continuations(vocabulary).of(rest)))) == [
        "Haus",
        "Hausboot",
        "Hauself",
    ]
    assert vocabulary.pieces(ids) == ["Ein"]
    assert encode_text(vocabulary, "Ein Katz") == ([*vocabulary.encode("Ein"), UNK], "")


@every_kind
def test_unknown_characters_are_the_unknown_word(vocabulary: Vocabulary) -> None:
    ids, rest = encode_text(vocabulary, "Ein Ha☃")
    assert UNK in ids
    assert rest == ""
    assert vocabulary.decode(ids).rstrip().endswith(UNKNOWN_TEXT.strip())


def test_only_the_end_of_a_long_text_without_spaces_is_open() -> None:
    vocabulary = VOCABULARIES["bpe"]
    ids, rest = encode_text(vocabulary, "我们去学校" * 100)
    assert 0 < len(rest) <= 32
    assert vocabulary.decode(ids) + rest == "我们去学校" * 100


def test_pieces_that_lead_nowhere_are_left_out() -> None:
    continuations_of_pieces = Continuations(["", "a", "ab", "b", "c", "cdx"])
    assert continuations_of_pieces.of("ab") == {1: "b", 2: ""}
    assert continuations_of_pieces.of("cd") == {5: ""}  # not c, since nothing begins with d
    assert continuations_of_pieces.of("abd") == {}
    assert continuations_of_pieces.of("acdx") == {1: "cdx"}


@pytest.mark.parametrize(
    ("prefix", "limit"),
    # The text that is left needs a token a letter at most.
    [
        ("wwwwwww", 7),
        ("wwwwwopen", 9),
        ("www", 4),
        ("", 4),
    ],
)
def test_the_limit_has_room_for_the_prefix(
    prefix: str, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def encode(task: Any, text: str) -> Prefix:
        return Prefix([5] * text.count("w"), text.replace("w", ""))

    monkeypatch.setattr(module, "encode_prefix", encode)
    task: Any = SimpleNamespace(target_vocabulary_size=9, never_generated=0)
    rule = module.Prefixes(PrefixConfig(), task=task, options=TranslateOptions())
    assert rule.prepared(Request([4, 4, 4], 4, prefix)).limit == limit


def spelled(rest: str) -> Mapping[int, str]:
    """A vocabulary of letters: the id of the n-th is 3 + n. 8 is `ab`."""
    if not rest:
        return {}
    letter = {EOS + 1 + "abcd".index(rest[0]): rest[1:]}
    return letter | {8: rest[2:]} if "ab".startswith(rest[:2]) else letter


prefixes = st.lists(
    st.builds(Prefix, st.lists(st.integers(4, 8), max_size=5), st.text("abcd", max_size=3)),
    min_size=5,
    max_size=5,
)


def text_of(tokens: list[int]) -> str:
    return "".join("ab" if token == 8 else "abcd"[token - EOS - 1] for token in tokens)


@settings(max_examples=80)
@given(seed=seeds, how=searches, given_prefixes=prefixes, unrepeated=st.booleans())
def test_every_output_begins_with_its_prefix(
    toy: Callable[..., Any],
    padded: Any,
    seed: int,
    how: str,
    given_prefixes: list[Prefix],
    unrepeated: bool,
) -> None:
    then = AllOf([NoRepeatedNgrams(2, nothing())] if unrepeated else [])
    constraint = BeginsWith(given_prefixes, spelled, then)
    limits = [len(ids) + len(rest) + 2 for ids, rest in given_prefixes]
    results = outputs(how, toy(9, seed), padded(SOURCES), limits, constraint)
    for prefix, hypotheses in zip(given_prefixes, results, strict=True):
        assert hypotheses
        for h in hypotheses:
            size = len(prefix.ids)
            assert h.tokens[:size] == prefix.ids
            assert text_of(h.tokens[size:]).startswith(prefix.rest)
            assert not {PAD, BOS, EOS, UNK} & set(h.tokens)
            own_ngrams = ngrams(h.tokens, 2)
            if unrepeated and not prefix.rest:
                after = own_ngrams[max(size - 1, 0) :]
                assert all(own_ngrams.count(gram) == 1 for gram in after)


@settings(max_examples=30)
@given(seed=seeds)
def test_the_beginning_of_the_output_itself_as_prefix_changes_nothing(
    toy: Callable[..., Any], padded: Any, seed: int
) -> None:
    model, limits = toy(9, seed, 1.0), [8] * 5
    free = outputs("greedy", model, padded(SOURCES), limits, None)
    half = BeginsWith(
        [Prefix(h.tokens[: len(h.tokens) // 2], "") for (h,) in free], spelled, AllOf([])
    )
    assert outputs("greedy", model, padded(SOURCES), limits, half) == free


def test_the_unknown_word_is_forced_but_not_chosen(toy: Callable[..., Any], padded: Any) -> None:
    given_prefixes = [Prefix([UNK, 4, UNK], ""), *[FREE] * 4]
    for how in ("greedy", "beam", "samples"):
        for seed in range(20):
            constraint = BeginsWith(given_prefixes, spelled, AllOf([]), unknown=False)
            model, source = toy(6, seed, 0.5), padded([[4]] * 5)
            results = outputs(how, model, source, [6] * 5, constraint, unknown=True)
            everything: list[Hypothesis] = [h for hypotheses in results for h in hypotheses]
            assert all(h.tokens[:3] == [UNK, 4, UNK] for h in results[0])
            assert sum(h.tokens.count(UNK) for h in everything) == 2 * len(results[0])


def test_a_prefix_may_fill_the_limit(toy: Callable[..., Any], padded: Any) -> None:
    constraint = BeginsWith([Prefix([4, 5, 6], "")], spelled, AllOf([]))
    (hypotheses,) = beam_search(toy(9, 1), padded([[4]]), [3], SearchSettings(beam=2), constraint)
    assert hypotheses[0].tokens == [4, 5, 6]
