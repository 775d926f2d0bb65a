"""The table of the parsing recipe: the paper's column is filled for the paper's treebank only."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "recipes" / "parsing_table.py"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The output of the recipe, as far as the table reads it."""
    for name in ("trees", "data", "averaged"):
        (tmp_path / name).mkdir()
    for split in ("train", "dev", "test"):
        (tmp_path / "trees" / f"{split}.ptb").write_text("(TOP (A a))\n" * 39)
        for stem in (split, f"{split}.constrained"):
            figures = {"f1": 90.0, "recall": 89.0, "precision": 91.0, "complete_match": 40.0, "cutoff_length": 40}
            counts = {"error_sentences": 1, "skipped_sentences": 2, "short": {"f1": 92.0}}
            (tmp_path / f"{stem}.json").write_text(json.dumps({**figures, **counts}))
            (tmp_path / f"{stem}.log").write_text(
                "translated 39 lines\nrepaired 2 of 39 outputs: flat 2\n" if stem == "dev" else ""
            )
    (tmp_path / "data/manifest.json").write_text(json.dumps({"task": {"config": {"vocab_size": 15_000}}}))
    header = json.dumps({"weight": {"shape": [30, 40]}}).encode()
    (tmp_path / "averaged/model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    write_point(tmp_path, "dropout-0.1-scale-1", 80.0)
    return tmp_path


def write_point(folder: Path, point: str, f1: float) -> None:
    (folder / "sweep" / point).mkdir(parents=True)
    (folder / "sweep" / point / "dev.json").write_text(json.dumps({"f1": f1}))


def table(folder: Path, *arguments: str) -> tuple[dict[str, list[str]], str]:
    """The cells of each row, and the whole text."""
    command = [sys.executable, str(SCRIPT), *arguments]
    text = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True, timeout=120).stdout
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.split("\n") if line.startswith("|")]
    return {name: cells for name, *cells in rows}, text


def filled(rows: dict[str, list[str]]) -> list[str]:
    """The rows that have a figure of the paper."""
    return [
        name
        for name, cells in rows.items()
        if len(cells) == 3 and cells[0] not in ("", "paper") and "-" not in cells[0]
    ]


@pytest.mark.parametrize(("semi", "subwords", "f1"), [("", 16_000, 91.3), ("semi-supervised", 32_000, 92.7)])
def test_wsj_figures_are_compared_with_the_paper(folder: Path, semi: str, subwords: int, f1: float) -> None:
    rows, text = table(folder, "wsj", semi, "")
    assert rows["train, trees"] == ["about 40,000", "39", ""]
    assert rows["subwords"] == [f"{subwords:,}", "15,000", f"{15_000 - subwords:+,}"]
    for way in ("test", "test, constrained"):
        assert rows[f"{way}: F1"] == [f"{f1:.2f}", "90.00", f"{90 - f1:+.2f}"]
    assert filled(rows) == ["train, trees", "subwords", "test: F1", "test, constrained: F1"]
    assert rows["dev: repairs"] == ["", "2 of 39 outputs: flat 2", ""]
    assert rows["dev, constrained: repairs"] == ["", "none", ""]
    assert rows["test: sentences excluded by EVALB"] == ["", "3", ""]
    assert "LDC99T42 usually gives 39,832, 1,700 and 2,416 trees" in text


def test_another_treebank_is_not_compared(folder: Path) -> None:
    rows, text = table(folder, "named", "", "")
    assert filled(rows) == []
    assert "cannot be compared" in text
    assert rows["train, trees"] == ["", "39", ""]
    assert "LDC99T42" not in text


def test_the_best_point_of_the_sweep_is_chosen(tmp_path: Path) -> None:
    for point, f1 in {"dropout-0.1-scale-0.5": 70.0, "dropout-0.2-scale-1": 80.0, "dropout-0.3-scale-2": 75.0}.items():
        write_point(tmp_path, point, f1)
    command = [sys.executable, str(SCRIPT), "flags"]
    found = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True, timeout=120).stdout
    assert found.strip() == "--dropout 0.2 --attention-dropout 0.2 --learning-rate-scale 1"
