"""The table of a WMT14 recipe: the paper, the run, the difference."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import paper_tables
import pytest


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, results: Any) -> Path:
    """The results of the English-German recipe, with made-up figures."""
    monkeypatch.chdir(tmp_path)
    results.write_json(
        tmp_path / "text" / "counts.json",
        {"newstest2014": {"split": "test", "lines": 3000, "expected": 3003}},
    )
    train = {"read": 4_600_000, "sentences": 4_500_001}
    vocabularies = {"source": {"size": 37_000}}
    results.write_json(
        tmp_path / "data" / "manifest.json",
        {"splits": {"train": train}, "task": {"vocabularies": vocabularies}},
    )
    results.write_run(tmp_path / "base" / "run", 5.0, 1000)
    scores = [results.score("bleu", 26.4), results.score("get-ende-bleu-quotes", 27.0)]
    results.write_json(tmp_path / "base" / "score.json", {"scores": scores})
    return tmp_path


def test_the_table_shows_paper_run_and_difference(
    folder: Path,
    table_of: Callable[..., dict[str, list[str]]],
    results: Any,
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows = table_of(paper_tables, "en", "de", "base", "5")
    assert rows["lines, newstest2014 (test)"] == ["3,003", "3,000", "-3"]
    assert rows["training pairs"] == ["4,500,000", "4,500,001", "+1"]
    assert rows["vocabulary"] == ["37,000", "37,000", "0"]
    assert rows["parameters"] == ["65,000,000", "1,000", "-64,999,000"]
    assert rows["peak learning rate"] == ["6.99e-04", "5.00e-01", "+4.99e-01"]
    assert rows["dev perplexity a subword, last checkpoint"] == ["4.920", "5.000", "+0.080"]
    assert rows["score, get-ende-bleu-quotes"] == ["27.30", "27.00", "-0.30"]
    assert rows["score, bleu"] == ["", "26.40", ""]
    assert rows["hours x devices"] == ["96.00", "", ""]  # a run without a summary still has a table

    summary = {"devices": 4, "device_hours": 80.0, "flops_as_table2": 3.4e18, "flops": 1e18}
    results.write_json(
        folder / "base" / "run" / "summary.json", {**summary, "model_flop_utilisation": 0.375}
    )
    rows = table_of(paper_tables, "en", "de", "base", "5")
    assert rows["hours x devices"] == ["96.00", "80.00", "-16.00"]
    assert rows["FLOPs: hours x devices x sustained rate"] == ["3.30e+18", "3.40e+18", "+1.00e+17"]
    assert rows["model-FLOP utilisation"] == ["", "37.5%", ""]
    paper_tables.main("en", "de", "base", "5", "A note.")
    text = capsys.readouterr().out
    assert "base model. A note.\n" in text
    assert "- bleu: the full name of bleu; `nrefs:1`" in text
