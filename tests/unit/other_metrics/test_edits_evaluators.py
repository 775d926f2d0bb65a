"""Exact match and error rates beside the evaluators of shared tasks, which are run on outputs made up here."""

from __future__ import annotations

import gzip
import os
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest

from nmt_cli.metrics.bleu import score


def figures(script: Path, *arguments: Path, path: Path | None = None) -> dict[str, float]:
    """Run an evaluator, which prints names, a colon and numbers. `path` has a module that it imports."""
    done = subprocess.run(
        [sys.executable, str(script), *map(str, arguments)],
        capture_output=True,
        encoding="utf-8",
        env={**os.environ, "PYTHONUTF8": "1", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": str(path or "")},
        check=True,
    )
    return {name.strip(): float(value) for name, value in re.findall(r"^(.+):\s+([\d.]+)$", done.stdout, re.MULTILINE)}


def rates(hypotheses: list[str], references: list[str]) -> dict[str, float]:
    exact, phones = (found.score for found in score(hypotheses, references, ["exact", "per"]))
    return {"WER": round(100 - exact, 2), "LER": round(phones, 2)}


def write_columns(path: Path, *columns: list[str]) -> Path:
    path.write_text("".join("\t".join(row) + "\n" for row in zip(*columns, strict=True)), encoding="utf-8")
    return path


@pytest.mark.parametrize("language", ["arm", "fre", "hin", "lit"])
def test_words_and_phones_of_spelling_to_phones(language: str, shared_data: Path, tmp_path: Path) -> None:
    folder, chance = shared_data / "tasks", random.Random(language)
    lines = (folder / f"g2p-2020/test/{language}_test.tsv").read_text(encoding="utf-8").removesuffix("\n").split("\n")
    gold = [line.split("\t")[1] for line in lines]
    outputs = []
    for phones in map(str.split, gold):
        edited, place = phones[:], chance.randrange(len(phones))
        edited[place : place + chance.randrange(2)] = chance.choices(phones, k=chance.randrange(2))
        outputs.append(" ".join(edited))
    table = write_columns(tmp_path / "table.tsv", gold, outputs)
    found = rates(outputs, gold)
    assert figures(folder / "g2p-2020/official/evaluate.py", table) == found
    assert figures(folder / "g2p-2021/official/evaluate.py", table) == {"WER": found["WER"]}
    assert 10 < found["WER"] < 90


def test_the_evaluator_of_phones_counts_a_missing_beginning_once(shared_data: Path, tmp_path: Path) -> None:
    """Its table of edits begins with 1 in every place, not with 1, 2, 3. `per` is the Levenshtein distance."""
    table = write_columns(tmp_path / "table.tsv", ["a b c d"], ["c d"])
    assert figures(shared_data / "tasks/g2p-2020/official/evaluate.py", table) == {"WER": 100, "LER": 25}
    assert rates(["c d"], ["a b c d"]) == {"WER": 100, "LER": 50}


@pytest.mark.parametrize("name", ["german/german-anselm", "hungarian/hungarian-hgds", "slovene/slovene-goo300k-gaj"])
def test_accuracy_of_historical_spelling(name: str, shared_data: Path, tmp_path: Path) -> None:
    """After the official preprocessing, for the old spelling as it is."""
    folder = shared_data / "tasks" / "histnorm"
    raw, table, outputs = tmp_path / "raw", tmp_path / "table", tmp_path / "outputs"
    raw.write_bytes(gzip.decompress((folder / f"{name}.test.txt.gz").read_bytes()))
    script = [sys.executable, "-W", "ignore", str(folder / "official/scripts/preprocess.py"), "--all", str(raw)]
    table.write_bytes(subprocess.run(script, capture_output=True, check=True, env={"PYTHONUTF8": "1"}).stdout)
    pairs = [line.split("\t") for line in table.read_text(encoding="utf-8").removesuffix("\n").split("\n")]
    old, modern = ([pair[side] for pair in pairs] for side in (0, 1))
    write_columns(outputs, old)
    # The evaluator imports it for error rates, too.
    (tmp_path / "stringdist.py").write_text("from rapidfuzz.distance.Levenshtein import distance as levenshtein\n")
    (exact,) = score(old, modern, ["exact"])
    official = figures(folder / "official/scripts/evaluate.py", table, outputs, path=tmp_path)
    assert official["Tokens"] == len(pairs) > 10_000
    assert official["Word accuracy"] == round(exact.score / 100, 4)
