"""The table of quality, of translations that stand ready."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import quality
from benchmarks.quality import Text, arguments, measure

REFERENCE = ["a b c d e", "f g h i j", "k l m n o"]


def test_the_table_has_score_differences_and_speed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outputs = {"float32": REFERENCE, "int8": [*REFERENCE[:2], "k l m n p"]}
    calls = []

    def translate(text: Text, dtype: str, output: Path) -> float:
        calls.append(dtype)
        output.write_text("\n".join(outputs[dtype]) + "\n", encoding="utf-8")
        return {"float32": 3.0, "int8": 1.5}[dtype]

    monkeypatch.setattr(quality, "translate", translate)
    (tmp_path / "reference").write_text("\n".join(REFERENCE) + "\n", encoding="utf-8")
    files = [str(tmp_path / "reference")] * 3
    words = ["--test", "toy", *files, "--dtypes", "float32", "int8", "--rounds", "2"]
    options = arguments(words)
    exact, rounded = measure(options, options.tests[0], tmp_path / "samples.jsonl")
    assert calls == ["float32", "int8"] * 2
    assert exact == ["toy, float32", "100.00", "0 of 3", "3 (3-3)", "1 (1-1)"]
    assert (rounded[0], rounded[2:]) == ("toy, int8", ["1 of 3", "1.5 (1.5-1.5)", "2 (2-2)"])
    assert float(rounded[1]) < 100
    assert len((tmp_path / "samples.jsonl").read_text("utf-8").splitlines()) == 4


def test_a_missing_file_is_a_mistake_of_the_command_line(tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        arguments(["--test", "toy", str(tmp_path), str(tmp_path / "source"), str(tmp_path / "reference")])
