"""`nmt report --robustness`: scores with altered sources."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tiny_run import run as tiny_run

from nmt_cli.annexes.report import robustness
from nmt_cli.metrics.bleu import score

Nmt = Callable[..., tuple[int, str, str]]
CHANGES = {"unchanged", "two_spaces", "upper", "title", "typos", "no_final_stop"}


@pytest.fixture(scope="module")
def run(tiny_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("robustness") / "run"
    tiny_run(tiny_data, out)
    return out


def test_scores_are_of_the_altered_lines(
    nmt: Nmt, run: Path, tiny_data: Path, tmp_path: Path
) -> None:
    words = [run, "--robustness", "--beam", 1, "--sentences", 30, "--device", "cpu"]
    code, printed, messages = nmt("report", *words, "--json")
    assert code == 0, messages
    scores = json.loads(printed)[str(run)]
    assert scores.keys() == CHANGES
    references = (tiny_data / "valid.target.txt").read_text().lower().splitlines()[:30]
    sources = (tiny_data / "valid.source.txt").read_text().splitlines()[:30]
    for name, change in {
        "unchanged": str,
        "upper": str.upper,
        "two_spaces": lambda line: line.replace(" ", "  "),
    }.items():
        (tmp_path / "lines").write_text("".join(f"{change(line)}\n" for line in sources))
        flags = ["--beam", 1, "--output", tmp_path / "outputs", "--device", "cpu"]
        nmt("translate", run, "--input", tmp_path / "lines", *flags)
        outputs = (tmp_path / "outputs").read_text().lower().splitlines()
        assert scores[name] == pytest.approx(score(outputs, references, ["bleu"])[0].score)
    assert nmt("report", *words, "--json")[1] == printed  # the same typos


def test_a_table_has_a_column_for_each_run(
    nmt: Nmt, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(robustness, "translator_of", lambda *_: Echo())
    code, table, _ = nmt("report", run, "--robustness")
    assert code == 0
    rows = dict(re.findall(r"(\w+) +│ +([\d.]+) +│", table))
    assert rows.keys() == CHANGES


class Echo:
    def translate(self, lines: list[str]) -> list[str]:
        return lines


def test_capitals_cost_nothing_where_they_are_translated(
    nmt: Nmt, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The output of such a translator has the capitals of the source, and scores as without."""
    monkeypatch.setattr(robustness, "translator_of", lambda *_: Echo())
    scores: dict[str, Any] = json.loads(nmt("report", run, "--robustness", "--json")[1])[str(run)]
    assert scores["upper"] == scores["title"] == scores["unchanged"]


def test_there_is_no_page(nmt: Nmt, run: Path, tmp_path: Path) -> None:
    code, _, messages = nmt("report", run, "--robustness", "--out", tmp_path / "page.html")
    assert code == 2
    assert "--out cannot be used" in messages
