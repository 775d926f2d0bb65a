"""Drawn segmentations: the same text, the same in every process, as frequent as defined."""

from __future__ import annotations

import gzip
import itertools
import math
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
import sentencepiece
from hypothesis import given
from hypothesis import strategies as st

from nmt_cli.annexes.later.word_samples import sampler
from nmt_cli.data import subwords
from nmt_cli.data.subwords import LearningOptions, SentencePieces
from nmt_cli.interfaces import UNK

LINES = [
    *(
        "the lowest abode is widest",
        "slow slowly slower slowest sewed sewn",
        "newer newest newly new",
        "xä 😀",
    ),
    *(
        "lower lowered wider widely bidder bide abide header heading reader reading seed seeded "
        "needle needed"
    ).split(),
] * 3
DRAWS = 5000


def learned(
    kind: str, size: int, lines: list[str] = LINES, byte_fallback: bool = False
) -> SentencePieces:
    vocabulary = subwords.learn(lines, LearningOptions(kind, size, byte_fallback))
    assert isinstance(vocabulary, SentencePieces)
    return vocabulary


@pytest.fixture(scope="module", params=["bpe", "unigram"])
def vocabulary(request: pytest.FixtureRequest) -> SentencePieces:
    return learned(request.param, 300, byte_fallback=True)


@given(
    st.text("abdehlnorstwxyä😀 中\t", max_size=30),
    st.sampled_from([0.1, 0.5, 1.0]),
    st.integers(0, 99),
)
def test_a_sample_has_the_same_text(
    vocabulary: SentencePieces, text: str, amount: float, seed: int
) -> None:
    ids = sampler(vocabulary, amount)(text, Random(seed))
    assert vocabulary.decode(ids) == text
    assert UNK not in ids


def test_a_character_that_is_no_piece_is_unknown_and_the_rest_is_drawn() -> None:
    vocabulary = learned("bpe", 60)
    ids = sampler(vocabulary, 1.0)("new Ж new", Random(1))
    assert vocabulary.pieces(ids) == [*"▁new", "▁", "<unk>", *"▁new"]


def test_other_processes_draw_the_same(vocabulary: SentencePieces, tmp_path: Path) -> None:
    """A resumed run is another process. SentencePiece itself would not."""
    described = subwords.save(vocabulary, tmp_path, "joint")
    drawn = (
        "[sampler(load(Path(F), D), 0.3)('the slowest newest lowest', Random(f'1 {i}')) for i in "
        "range(20)]"
    )
    code = (
        "from pathlib import Path; from random import Random; from nmt_cli.data.subwords import "
        "load; "
        "from nmt_cli.annexes.later.word_samples import sampler; "
        f"F, D = {str(tmp_path)!r}, {described!r}; print({drawn})"
    )
    first, second = (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout
        for _ in "12"
    )
    assert first == second
    assert len(set(first.split("], ["))) > 10


def test_nothing_left_out_and_the_best_are_plain_segmentations(shared_data: Path) -> None:
    """On real text, as SentencePiece has it. A high power leaves only the best segmentation."""
    lines = (
        gzip.decompress((shared_data / "multi30k" / "val.de.gz").read_bytes()).decode().split("\n")
    )
    for kind, amount in (("bpe", 0.0), ("unigram", 1e6)):
        vocabulary = learned(kind, 2000, lines)
        sample = sampler(vocabulary, amount)
        different = [line for line in lines if sample(line, Random(1)) != vocabulary.encode(line)]
        assert different == []


def test_bpe_with_everything_left_out_is_letters() -> None:
    vocabulary = learned("bpe", 60)
    for line in LINES:
        assert vocabulary.pieces(sampler(vocabulary, 1.0)(line, Random(1))) == list(
            "▁" + line.replace(" ", "▁")
        )


def near(count: int, probability: float, deviations: float = 4) -> bool:
    """Whether `count` of `DRAWS` is as a probability lets expect."""
    return abs(count - DRAWS * probability) <= deviations * math.sqrt(
        DRAWS * probability * (1 - probability)
    )


def drawn(vocabulary: SentencePieces, text: str, amount: float) -> Counter[tuple[str, ...]]:
    sample, random = sampler(vocabulary, amount), Random(1)
    return Counter(tuple(vocabulary.pieces(sample(text, random))) for _ in range(DRAWS))


def test_bpe_leaves_out_merges_with_their_probability() -> None:
    """`▁ab` is made of `▁ a b` by two merges. The second has nothing to merge without the first."""
    vocabulary = learned("bpe", 9, ["ab"] * 9)
    merges = set(vocabulary.pieces(range(4, 9))) - set("▁ab")
    assert len(merges) == 2
    half = next(piece for piece in merges if len(piece) == 2)
    frequencies = drawn(vocabulary, "ab", 0.2)
    partly = tuple("▁ab".replace(half, f" {half} ").split())
    assert set(frequencies) == {("▁ab",), partly, tuple("▁ab")}
    assert near(frequencies["▁ab",], 0.8 * 0.8)
    assert near(frequencies[partly], 0.8 * 0.2)
    assert near(frequencies[tuple("▁ab")], 0.2)


def segmentations(text: str, pieces: dict[str, float]) -> Iterator[tuple[str, ...]]:
    for cuts in itertools.product([False, True], repeat=len(text) - 1):
        ends = [0, *(i + 1 for i, cut in enumerate(cuts) if cut), len(text)]
        cut_text = tuple(text[first:end] for first, end in itertools.pairwise(ends))
        if all(piece in pieces for piece in cut_text):
            yield cut_text


@pytest.mark.parametrize("power", [0.2, 1.0])
def test_unigram_segmentations_are_drawn_by_their_probability_to_a_power(power: float) -> None:
    vocabulary = learned("unigram", 40)
    processor = sentencepiece.SentencePieceProcessor(model_proto=vocabulary.serialise())
    pieces = {processor.id_to_piece(i): processor.get_score(i) for i in range(4, len(vocabulary))}
    weights = {
        segmentation: math.exp(power * sum(pieces[p] for p in segmentation))
        for segmentation in segmentations("▁slowest", pieces)
    }
    assert len(weights) > 4
    frequencies = drawn(vocabulary, "slowest", power)
    assert set(frequencies) <= set(weights)
    assert all(
        near(frequencies[segmentation], weight / sum(weights.values()))
        for segmentation, weight in weights.items()
    )


def merged(text: str, scores: dict[str, float], left_out: float, random: Random) -> tuple[str, ...]:
    """Algorithm 1 of Provilkov et al.

    2020, word for word: each pair is drawn anew before each merge.
    """
    pieces = list(text)
    while pairs := [
        (-scores[first + second], i)
        for i, (first, second) in enumerate(itertools.pairwise(pieces))
        if first + second in scores and random.random() >= left_out
    ]:
        _, i = min(pairs)
        pieces[i : i + 2] = [pieces[i] + pieces[i + 1]]
    return tuple(pieces)


@pytest.mark.parametrize("left_out", [0.1, 0.4])
def test_bpe_draws_as_often_as_the_algorithm_of_the_paper(left_out: float) -> None:
    vocabulary = learned("bpe", 40)
    processor = sentencepiece.SentencePieceProcessor(model_proto=vocabulary.serialise())
    scores = {processor.id_to_piece(i): processor.get_score(i) for i in range(4, len(vocabulary))}
    random = Random(2)
    their_counts = Counter(
        tuple(
            piece
            for word in ("▁slowest", "▁lower")
            for piece in merged(word, scores, left_out, random)
        )
        for _ in range(DRAWS)
    )
    our_counts = drawn(vocabulary, "slowest lower", left_out)
    assert len(our_counts) > 10
    for segmentation in their_counts | our_counts:
        assert (
            near(their_counts[segmentation], our_counts[segmentation] / DRAWS, 6)
            or max(their_counts[segmentation], our_counts[segmentation]) < 30
        )


def test_sentencepiece_draws_as_often_from_a_unigram_model() -> None:
    """SentencePiece's seeds cannot be set, so the bound is too wide to be crossed by chance."""
    vocabulary = learned("unigram", 40)
    processor = sentencepiece.SentencePieceProcessor(model_proto=vocabulary.serialise())
    settings = {"out_type": str, "enable_sampling": True, "alpha": 0.3, "nbest_size": -1}
    their_counts = Counter(
        tuple(processor.encode("slowest lower", **settings)) for _ in range(DRAWS)
    )
    our_counts = drawn(vocabulary, "slowest lower", 0.3)
    assert len(our_counts) > 10
    for segmentation in their_counts | our_counts:
        assert (
            near(their_counts[segmentation], our_counts[segmentation] / DRAWS, 10)
            or max(their_counts[segmentation], our_counts[segmentation]) < 50
        )
