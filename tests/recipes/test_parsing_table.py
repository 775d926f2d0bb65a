"""The table of the parsing recipe: the paper's column is filled for the paper's treebank only."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import parsing_table
import pytest

Table = Callable[..., dict[str, list[str]]]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The output of the recipe, as far as the table reads it."""
    monkeypatch.chdir(tmp_path)
    for name in ("trees", "data", "averaged"):
        (tmp_path / name).mkdir()
    for split in ("train", "dev", "test"):
        (tmp_path / "trees" / f"{split}.ptb").write_text("(TOP (A a))\n" * 39)
        for stem in (split, f"{split}.constrained"):
            figures = {
                "f1": 90.0,
                "recall": 89.0,
                "precision": 91.0,
                "complete_match": 40.0,
                "cutoff_length": 40,
            }
            counts = {"error_sentences": 1, "skipped_sentences": 2, "short": {"f1": 92.0}}
            (tmp_path / f"{stem}.json").write_text(json.dumps({**figures, **counts}))
            (tmp_path / f"{stem}.log").write_text(
                "translated 39 lines\nrepaired 2 of 39 outputs: flat 2\n" if stem == "dev" else ""
            )
    (tmp_path / "data/manifest.json").write_text(
        json.dumps({"task": {"config": {"vocab_size": 15_000}}})
    )
    header = json.dumps({"weight": {"shape": [30, 40]}}).encode()
    (tmp_path / "averaged/model.safetensors").write_bytes(
        len(header).to_bytes(8, "little") + header
    )
    write_point(tmp_path, "dropout-0.1-scale-1", 80.0)
    return tmp_path


def write_point(folder: Path, point: str, f1: float) -> None:
    (folder / "sweep" / point).mkdir(parents=True)
    (folder / "sweep" / point / "dev.json").write_text(json.dumps({"f1": f1}))


def filled(rows: dict[str, list[str]]) -> list[str]:
    """The rows that have a figure of the paper."""
    return [
        name
        for name, cells in rows.items()
        if len(cells) == 3 and cells[0].strip("-:") not in ("", "paper")
    ]


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("semi", "subwords", "f1"), [("", 16_000, 91.3), ("semi-supervised", 32_000, 92.7)]
)
def test_wsj_figures_are_compared_with_the_paper(
    table_of: Table, semi: str, subwords: int, f1: float
) -> None:
    rows = table_of(parsing_table, "wsj", semi, "")
    assert rows["train, trees"] == ["about 40,000", "39", ""]
    assert rows["subwords"] == [f"{subwords:,}", "15,000", f"{15_000 - subwords:+,}"]
    for way in ("test", "test, constrained"):
        assert rows[f"{way}: F1"] == [f"{f1:.2f}", "90.00", f"{90 - f1:+.2f}"]
    assert filled(rows) == ["train, trees", "subwords", "test: F1", "test, constrained: F1"]
    assert rows["dev: repairs"] == ["", "2 of 39 outputs: flat 2", ""]
    assert rows["dev, constrained: repairs"] == ["", "none", ""]
    assert rows["test: sentences excluded by EVALB"] == ["", "3", ""]


@pytest.mark.usefixtures("folder")
def test_another_treebank_is_not_compared(table_of: Table) -> None:
    assert filled(table_of(parsing_table, "named", "", "")) == []


def test_the_best_point_of_the_sweep_is_chosen(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for point, f1 in {"dropout-0.2-scale-1": 85.0, "dropout-0.3-scale-2": 75.0}.items():
        write_point(folder, point, f1)
    parsing_table.main("flags")
    assert (
        capsys.readouterr().out == "--dropout 0.2 --attention-dropout 0.2 --learning-rate-scale 1\n"
    )
