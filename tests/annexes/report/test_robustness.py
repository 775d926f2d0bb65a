"""`nmt report --robustness`: scores with altered sources."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from tiny_run import run as tiny_run

from nmt_cli.annexes.report import robustness
from nmt_cli.annexes.report.runs import read_run

Nmt = Callable[..., tuple[int, str, str]]
CHANGES = {"unchanged", "two_spaces", "upper", "title", "typos", "no_final_stop"}
SOURCE = "A man rides a bike."
REFERENCE = "Ein Mann fährt auf einem Rad."


@pytest.fixture(scope="module")
def run(tiny_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("robustness") / "run"
    tiny_run(tiny_data, out)
    return out


class Capitals:
    """Translates rightly, in capitals, unless the source has capitals, and keeps its sources."""

    def __init__(self) -> None:
        self.sources: list[str] = []

    def translate(self, lines: list[str]) -> list[str]:
        self.sources += lines
        return ["" if line.isupper() else REFERENCE.upper() for line in lines]


def test_a_column_for_each_run_and_a_row_for_each_change(
    nmt: Nmt, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Capitals of outputs cost nothing."""
    task, corpus, *_ = robustness.validation_text(read_run(run))
    translator = Capitals()
    monkeypatch.setattr(robustness, "translator_of", lambda *_: translator)
    text = (task, corpus, [SOURCE, SOURCE], [REFERENCE, REFERENCE])
    monkeypatch.setattr(robustness, "validation_text", lambda _: text)
    code, table, _ = nmt("report", run, "--robustness", "--sentences", 1)
    assert code == 0
    rows = dict(re.findall(r"(\w+) +│ +([\d.]+) +│", table))
    assert rows == {name: "0.0" if name == "upper" else "100.0" for name in CHANGES}
    given = dict(zip(rows, translator.sources, strict=True))
    typos = given.pop("typos")
    assert typos not in (SOURCE, *given.values())
    assert given == {
        "unchanged": SOURCE,
        "two_spaces": "A  man  rides  a  bike.",
        "upper": SOURCE.upper(),
        "title": SOURCE.title(),
        "no_final_stop": SOURCE.removesuffix("."),
    }
    printed = nmt("report", run, "--robustness", "--json")[1]
    assert json.loads(printed)[str(run)]["typos"] == pytest.approx(100)
    assert typos in translator.sources[6:]  # the same typos


def test_real_outputs(nmt: Nmt, run: Path) -> None:
    words = [run, "--robustness", "--beam", 1, "--sentences", 30, "--device", "cpu", "--json"]
    code, printed, messages = nmt("report", *words)
    assert code == 0, messages
    assert json.loads(printed)[str(run)].keys() == CHANGES


def test_there_is_no_page(nmt: Nmt, run: Path, tmp_path: Path) -> None:
    code, _, messages = nmt("report", run, "--robustness", "--out", tmp_path / "page.html")
    assert code == 2
    assert "--out cannot be used" in messages
