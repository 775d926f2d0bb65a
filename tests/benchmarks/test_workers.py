"""The processes of the systems: turns, samples, and systems that do not start."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from benchmarks import workers
from benchmarks.peers.serve import Ids, sample
from benchmarks.samples import Sample
from benchmarks.workers import System, Worker, started, take_turns, translations


def test_systems_are_read_from_the_command_line() -> None:
    assert System.parse("nmt:int8") == System("nmt", "int8")
    assert System.parse("fairseq").name == "fairseq float32"


def test_a_sample_takes_the_sources_in_turn() -> None:
    calls: list[Ids] = []

    def translate(sources: Ids) -> Ids:
        calls.append(sources)
        return [[7] * 30 for _ in sources]

    result = sample(translate, 30, [[1], [2], [3]], batch=2, seconds=0.0)
    assert calls == [[[1]], [[1], [2]]]  # one to warm up, one in the sample
    assert result["amount"] == 2
    assert result["seconds"] > 0


def test_outputs_of_another_length_are_refused() -> None:
    with pytest.raises(ValueError, match="30 tokens"):
        sample(lambda sources: [[7] * 28 for _ in sources], 30, [[1]], batch=1, seconds=0.0)


def test_systems_take_turns_on_the_same_sources() -> None:
    asked: list[tuple[str, int, int]] = []

    class Recorded:
        def __init__(self, name: str) -> None:
            self.name = name

        def sample(self, case: Mapping[str, Any], number: int, request: Mapping[str, Any]) -> Sample:
            asked.append((self.name, number, request["sources"][0]))
            return Sample(case, self.name, number, request["batch"], 1.0)

    both = cast("list[Worker]", [Recorded("a"), Recorded("b")])
    assert len(list(take_turns(both, {}, 2, translations([10, 11, 12, 13, 14], 3, 1.0)))) == 4
    assert asked == [("a", 0, 10), ("b", 0, 10), ("a", 1, 13), ("b", 1, 13)]


def test_a_system_that_does_not_start_is_left_out_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "benchmarks" / "peers").mkdir(parents=True)
    (tmp_path / "benchmarks" / "__init__.py").touch()
    (tmp_path / "benchmarks" / "peers" / "absent.py").write_text("import no_such_program\n", "utf-8")
    monkeypatch.setattr(workers, "ROOT", tmp_path)
    systems = [System("absent", "float32"), System("elsewhere", "int8")]
    pythons = {"absent": sys.executable, "elsewhere": str(tmp_path / "python")}
    with started(systems, pythons, {"cores": 1}) as (running, reasons):
        assert running == []
    assert "No module named 'no_such_program'" in reasons["absent float32"]
    assert "interpreter" in reasons["elsewhere int8"]
