"""CodeXGLUE's BLEU: a closed form, and its evaluators' figures for real systems' outputs."""

from __future__ import annotations

from pathlib import Path

import pytest

from nmt_cli.files.text import read_lines
from nmt_cli.metrics.bleu import score, score_systems
from nmt_cli.metrics.significance import TESTS, paired_test


@pytest.mark.parametrize(
    ("hypothesis", "product"),
    [("a b  c x", 4 / 5 * 3 / 4 * 2 / 3 / 2), ("x y z w", 1 / 5 / 4 / 3 / 2), ("a b c d", 1)],
)
def test_one_is_added_to_every_order(hypothesis: str, product: float) -> None:
    (result,) = score([hypothesis], ["a b\tc\u00a0d"], ["codexglue"])
    assert result.score == pytest.approx(100 * product**0.25)
    (line,) = score_systems(
        [("", [hypothesis])], [("", ["a b c d"])], ["codexglue"], labels=["all"]
    )
    assert line.groups["all"] == line.score == result.score


@pytest.mark.parametrize("test", TESTS)
def test_paired_tests_score_the_same(test: str) -> None:
    references = [f"{number} b c d e" for number in range(60)]
    worse = [line.replace("b", "x") for line in references]
    systems = [("a", references), ("b", worse)]
    _, compared = paired_test(systems, [("reference", references)], test, ["codexglue"], samples=99)
    (result,) = score(worse, references, ["codexglue"])
    assert compared.score == pytest.approx(result.score)
    assert compared.p_value == pytest.approx(1 / 100)


@pytest.mark.parametrize(
    ("output", "gold", "published"),
    [
        (
            "code-java-cs/official/saved_outputs/java-cs-model1.output.gz",
            "java-cs-model1.gold.gz",
            77.46,
        ),
        ("code-java-cs/official/saved_outputs/cs-java-model1.output", "cs-java-model1.gold", 71.99),
        ("docs-en-lv/official/output.txt", "gold.txt", 67.75),
    ],
)
def test_published_scores(output: str, gold: str, published: float, shared_data: Path) -> None:
    path = shared_data / "tasks" / output
    sides = [list(read_lines(side)) for side in (path, path.with_name(gold))]
    assert round(score(*sides, ["codexglue"])[0].score, 2) == published
