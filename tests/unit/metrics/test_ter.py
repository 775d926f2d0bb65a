"""TER: the edits, and so the figures, are sacreBLEU's."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sacrebleu.metrics import TER
from sacrebleu.metrics.lib_ter import BeamEditDistance, translation_edit_rate

from nmt_cli.metrics.ter import EditDistance, FastTER, count_edits

WORDS = st.lists(st.sampled_from("abcdefg"), max_size=40)


@settings(max_examples=150)
@given(WORDS, WORDS)
@example(list("ab" * 60), list("ba" * 70))  # long and unlike: left to sacreBLEU
@example(list("abcdefg" * 12), list("efgabcd" * 12))
def test_edits_are_those_of_sacrebleu(words: list[str], reference: list[str]) -> None:
    assert count_edits(words, reference) == translation_edit_rate(words, reference)[0]


@settings(max_examples=150)
@given(WORDS, WORDS.filter(bool))
def test_distances_and_traces_are_those_of_sacrebleu(words: list[str], reference: list[str]) -> None:
    distance = EditDistance(reference)
    distance.current = words
    assert distance(words) == BeamEditDistance(reference)(words)


def test_a_system_of_wmt17_with_two_references(shared_data: Path) -> None:
    folder = shared_data / "scorer/wmt17_en_de"
    hypotheses, other, reference = (
        gzip.decompress((folder / name).read_bytes()).decode().split("\n")[:100]
        for name in ("newstest2017.online-G.0.en-de.gz", "newstest2017.KIT.4950.en-de.gz", "reference.gz")
    )
    ours = FastTER().corpus_score(hypotheses, [reference, other])
    theirs = TER().corpus_score(hypotheses, [reference, other])
    assert (ours.score, ours.num_edits, ours.ref_length) == (theirs.score, theirs.num_edits, theirs.ref_length)


@pytest.mark.parametrize(
    ("words", "reference", "edits"), [("", "", 0), ("ab", "", 2), ("", "ab", 2), ("cdab", "abcd", 1)]
)
def test_known_edits(words: str, reference: str, edits: int) -> None:
    assert count_edits(list(words), list(reference)) == edits
