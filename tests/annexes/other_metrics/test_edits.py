"""Exact match, error rates and top-k accuracy: closed forms, and figures of official evaluators."""

from __future__ import annotations

import gzip
import itertools
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt_cli.annexes.other_metrics.edits import MEASURES, edits
from nmt_cli.metrics.bleu import measures_of, score
from nmt_cli.metrics.significance import TESTS, paired_test

TEXT = st.text(alphabet="ab ä\u0308\u00a0", max_size=9)


def only(metric: str, hypotheses: list[str], references: list[str]) -> float:
    (result,) = score(hypotheses, references, [metric])
    return result.score


def test_closed_forms() -> None:
    references = ["the cat sat", "a b c d e f g", ""]
    hypotheses = ["the  bat sat ", "a b x d e f g h", ""]
    assert only("exact", hypotheses, references) == pytest.approx(100 / 3)
    assert (
        only("wer", hypotheses, references)
        == only("per", hypotheses, references)
        == pytest.approx(100 * 3 / 10)
    )
    # Spaces are characters.
    assert only("cer", hypotheses, references) == pytest.approx(100 * (2 + 1 + 2) / (11 + 13))
    assert only("wer", ["a b"], [""]) == 200  # edits beside no word
    assert only("exact", [unicodedata.normalize("NFD", "wäre")], [" wäre"]) == 100


@pytest.mark.parametrize(("k", "expected"), [(1, 0), (3, 50), (5, 100), (10, 100)])
def test_top_k_counts_the_first_k(k: int, expected: float) -> None:
    assert only(f"top-{k}", ["a\nb\nc\nd", "a\nb\nc\nd"], ["c", "d"]) == expected


def test_another_metric_scores_the_first_output() -> None:
    scores = score(["a b c d\nx"], ["a b c d"], ["top-1", "exact", "bleu"])
    assert [result.score for result in scores] == [100, 100, 100]
    # Without top-k a line feed is white space.
    assert only("bleu", ["a\nb c d"], ["a b c d"]) == 100


@given(TEXT, TEXT)
def test_edits_are_those_of_the_recurrence(hypothesis: str, reference: str) -> None:
    one, other = (unicodedata.normalize("NFC", text).strip() for text in (hypothesis, reference))
    row = list(range(len(other) + 1))
    for i, a in enumerate(one, 1):
        diagonal, row[0] = row[0], i
        for j, b in enumerate(other, 1):
            diagonal, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, diagonal + (a != b))
    assert edits([hypothesis], [reference], [], units="characters") == [(100 * row[-1], len(other))]


@given(st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=4))
def test_no_error_is_an_exact_match(pairs: list[tuple[str, str]]) -> None:
    hypotheses, references = map(list, zip(*pairs, strict=True))
    exact, cer = (only(metric, hypotheses, references) for metric in ("exact", "cer"))
    assert (exact == 100) == (cer == 0)
    assert only("cer", references, references) == only("wer", references, references) == 0


@pytest.mark.parametrize("test", TESTS)
def test_paired_tests(test: str) -> None:
    references = [f"{number} b c" for number in range(60)]
    worse = [
        line.replace("b", "x") if number % 2 else line for number, line in enumerate(references)
    ]
    for metric in ("exact", "wer"):
        _, same, bad = paired_test(
            [("a", references), ("b", references), ("c", worse)],
            [("reference", references)],
            test,
            [metric],
            samples=99,
        )
        assert same.p_value == 1
        assert bad.p_value == pytest.approx(1 / 100)
        assert bad.score == pytest.approx(50 if metric == "exact" else 100 / 6)


def test_names_and_signatures() -> None:
    assert [
        measure.metric
        for measure in measures_of([measure.metric.upper() for measure in MEASURES], "de")
    ] == [measure.metric for measure in MEASURES]
    (result,) = score(["a"], ["a"], ["cer"])
    assert result.signature.startswith("nrefs:1|norm:nfc|nmt:")


def read(path: Path) -> list[str]:
    data = path.read_bytes()
    return (
        (gzip.decompress(data) if path.suffix == ".gz" else data)
        .decode()
        .removesuffix("\n")
        .split("\n")
    )


@pytest.mark.parametrize(("language", "accuracy"), [("hun", 72.35), ("ara", 75.89)])
def test_published_accuracy_of_inflection(
    language: str, accuracy: float, shared_data: Path
) -> None:
    folder = shared_data / "tasks" / "inflection-2022"
    outputs = read(folder / f"official/sample_predictions/cluzh/{language}_large.test")
    sides = [
        [line.split("\t")[1] for line in lines]
        for lines in (outputs, read(folder / f"{language}.gold"))
    ]
    assert round(only("exact", *sides), 2) == accuracy


@pytest.mark.parametrize(("name", "accuracy"), [("java-cs", 56.1), ("cs-java", 57.9)])
def test_published_accuracy_of_code(name: str, accuracy: float, shared_data: Path) -> None:
    folder = shared_data / "tasks" / "code-java-cs" / "official" / "saved_outputs"
    sides = [read(next(folder.glob(f"{name}-model1.{ending}*"))) for ending in ("output", "gold")]
    assert round(only("exact", *sides), 10) == accuracy


def test_exact_match_of_reactions(shared_data: Path) -> None:
    """35.67 is the share of equal strings.

    The published 37.47 compares molecules, which needs a chemist's library.
    """
    name = "tasks/retrosynthesis/official/lstm-beam_1_test_results.gz"
    sections = itertools.islice(read(shared_data / name), 5016)
    pairs = [line.split(" ") for line in sections if ">>" in line]
    sides = [[pair[side].partition(">>")[0] for pair in pairs] for side in (0, 1)]
    assert len(pairs) == 5004
    assert round(only("top-1", *sides), 2) == round(only("exact", *sides), 2) == 35.67
