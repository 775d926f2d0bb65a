"""Exact match and error rates beside the figures that shared tasks' evaluators printed."""

from __future__ import annotations

import csv
import gzip
from pathlib import Path

import pytest

from nmt_cli.metrics.bleu import score


@pytest.fixture(scope="module")
def folder(shared_data: Path) -> Path:
    return shared_data / "tasks" / "evaluators"


def printed(folder: Path, evaluator: str, table: str) -> dict[str, float]:
    """The names and figures that an evaluator printed for a table."""
    with (folder / "printed.tsv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    return {
        row["name"]: float(row["printed"])
        for row in rows
        if (row["evaluator"], row["table"]) == (evaluator, table)
    }


def columns(path: Path) -> tuple[list[str], list[str]]:
    """The two columns of a table, which may be compressed."""
    data = path.read_bytes()
    text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
    rows = [line.split("\t") for line in text.removesuffix("\n").split("\n")]
    return [first for first, _ in rows], [second for _, second in rows]


def rates(hypotheses: list[str], references: list[str]) -> dict[str, float]:
    exact, phones = (measure.score for measure in score(hypotheses, references, ["exact", "per"]))
    return {"WER": round(100 - exact, 2), "LER": round(phones, 2)}


@pytest.mark.parametrize("language", ["arm", "fre", "hin", "lit"])
def test_words_and_phones_of_spelling_to_phones(language: str, folder: Path) -> None:
    table = f"g2p.{language}.tsv"
    gold, outputs = columns(folder / table)
    measured = rates(outputs, gold)
    assert printed(folder, "g2p-2020", table) == measured
    assert printed(folder, "g2p-2021", table) == {"WER": measured["WER"]}
    assert 10 < measured["WER"] < 90


def test_the_evaluator_of_phones_counts_a_missing_beginning_once(folder: Path) -> None:
    """Its table of edits begins with 1 in every place, not with 1, 2, 3.

    `per` is the Levenshtein distance.
    """
    table = "g2p.missing-beginning.tsv"
    gold, outputs = columns(folder / table)
    assert printed(folder, "g2p-2020", table) == {"WER": 100, "LER": 25}
    assert rates(outputs, gold) == {"WER": 100, "LER": 50}


@pytest.mark.parametrize("name", ["german-anselm", "hungarian-hgds", "slovene-goo300k-gaj"])
def test_accuracy_of_historical_spelling(name: str, folder: Path) -> None:
    """After the official preprocessing, for the old spelling as the output."""
    table = f"histnorm.{name}.tsv.gz"
    old, modern = columns(folder / table)
    (exact,) = score(old, modern, ["exact"])
    official = printed(folder, "histnorm", table)
    assert official["Tokens"] == len(old) > 10_000
    assert official["Word accuracy"] == round(exact.score / 100, 4)
