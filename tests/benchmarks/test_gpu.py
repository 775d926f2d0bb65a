"""The measurements for a GPU, in a tiny form on the CPU."""

from __future__ import annotations

import atexit
import importlib
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch

from benchmarks import gpu, predict
from benchmarks.fake_gpu import Launch, Recorded
from benchmarks.gpu import Bench, measured
from benchmarks.gpu_runs import NotAvailable, Run
from benchmarks.workers import ROOT
from nmt_cli import registry


def bench(folder: Path) -> Bench:
    earlier = folder / "gpu-A.json"
    return Bench(
        torch.device("cpu"),
        True,
        folder,
        time.monotonic() + 300,
        {"tiny": gpu.TINY},
        256,
        6,
        earlier,
    )


def found(section: Any, folder: Path) -> list[dict[str, Any]]:
    """The rows of a section, of which none says that it failed."""
    rows = list(measured(section, bench(folder)))
    assert not [row for row in rows if "failed" in row or "not available" in row]
    return rows


def test_kernels_are_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "compile", lambda function: function)
    assert found(gpu.products, tmp_path)[0]["TFLOP/s in bfloat16"] == "tiny 256 x 16 x 48"
    kernels = {row["kernel"]: row["ms"] for row in found(gpu.attention, tmp_path)[:-1]}
    assert kernels["tiny: bins"] > 0
    assert kernels["tiny: scaled_dot_product_attention, padded"] > 0
    assert kernels["tiny: variable length"].startswith("not available")  # needs a GPU


@pytest.mark.parametrize("section", [gpu.steps, gpu.decoding, gpu.first_steps])
def test_a_section_yields_figures(section: Any, tmp_path: Path) -> None:
    assert found(section, tmp_path)


def test_other_programs_decode_the_same_sentences(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is not installed is a row."""
    pytest.importorskip("ctranslate2")
    peers = [("ctranslate2", ("float32",), 24), ("fairseq", ("float32",), 24)]
    monkeypatch.setitem(gpu.PEERS, "cpu", peers)
    rows = list(measured(gpu.beside, bench(tmp_path)))[:-1]
    assert [row[""] for row in rows] == [
        f"tiny, {program}, float32, beam {beam}"
        for program in ("ctranslate2", "fairseq")
        for beam in (4, 1)
    ]
    assert all(row["sentences/s"] > 0 for row in rows[:2])
    assert all("fairseq" in row["not available"] for row in rows[2:])


def test_the_seconds_to_a_bleu_are_those_of_the_speedrun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The recipe has the flags of each record, and one process."""
    commands: list[str] = []

    def output(self: Bench, *words: object, **settings: str) -> str:
        commands.append(" ".join(map(str, words)))
        assert settings == {"PROCESSES": "1"}
        return "multi30k  38.45  nrefs:1\nminutes of nmt train: 0.3\nseconds of nmt train: 21\n"

    monkeypatch.setattr(Bench, "output", output)
    machine = bench(tmp_path)
    assert "--text" in next(measured(gpu.quality, machine))["not available"]
    machine.text = tmp_path / "multi30k"
    rows = list(measured(gpu.quality, machine))
    assert rows[0] == {"Multi30k": "38 BLEU", "BLEU": 38.45, "s of nmt train": 21.0}
    recipe = f"bash {ROOT}/recipes/speedrun.sh {tmp_path}/multi30k --out "
    assert all(command.startswith(recipe) for command in commands)
    records = (ROOT / "benchmarks" / "speedrun.md").read_text().replace("\\\n    ", "")
    flags = commands[1].partition(" -- ")[2]
    assert flags in records


def test_kernels_are_one_table_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the figures of all models. One that fails costs the others nothing."""
    machine = bench(tmp_path)
    machine.models = {"base": gpu.TINY, "broken": gpu.TINY, "big": gpu.TINY}
    record = {"starts": [0.0, 1.0, 2.0], "graphs_when_warm": 1, "graphs": 1}
    record |= {"kernels": [["attention", 18.0, 2.0], ["adam", 1.0, 0.5]]}

    def train(self: Bench, name: str, *_: Any) -> Run:
        if name == "steps-broken":
            raise NotAvailable("out of memory")
        return Run(record, [{"target_tokens": 10, "step": 2}], 0.0, 0)

    monkeypatch.setattr(Bench, "train", train)
    machine.fastest, machine.pairs = 1.0, [([5], [6])]
    first = [next(iter(row)) for row in measured(gpu.steps, machine)]
    assert first[:3] == ["", "", ""]
    assert first[3:-1] == 2 * ["base: kernel"] + 2 * ["big: kernel"]


def test_the_utilisation_uses_the_products_of_part_a(tmp_path: Path) -> None:
    findings = gpu.Findings(tmp_path, "gpu-A", [])
    findings.add(
        "products", {"TFLOP/s in bfloat16": "base", "forward": 500.0, "weight's gradient": 700.0}
    )
    findings.add("products", {"took, s": 1000.0})
    assert bench(tmp_path).peak() == 700e12
    (tmp_path / "gpu-A.json").unlink()
    assert 0 < bench(tmp_path).peak() < 700e12


@pytest.mark.parametrize(("rate", "seconds"), [(1.0, 24.0), (4.0, 14.0)])
def test_sums_over_ranks_are_predicted_behind_the_backward_pass(
    rate: float, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three kernels of 4 s, and a sum of 8 bytes after the first one and the second one each.

    A slow sum delays the next sum, and both delay the last kernel.
    """
    monkeypatch.setattr(predict, "FIXED", 0.0)
    monkeypatch.setattr(predict, "LATENCY", 0.0)
    device = predict.Gpu("slow", 1.0, 1.0, 1.0, 1.0, 1.0)
    sums = [(1, 8), (2, 8)]
    counts = predict.Counted(3 * [Launch("copy", 4)], sums, Recorded(), (0, 0), 1.0, 1)
    assert counts.step(device) == 12.0
    assert counts.step_with_sums(device, 2, rate) == seconds


def test_a_failure_is_a_row_and_every_row_is_written_at_once(tmp_path: Path) -> None:
    def failing(_: Bench) -> Iterator[dict[str, Any]]:
        yield {"": "first", "ms": 1234.5}
        raise ZeroDivisionError("the figures")

    findings = gpu.Findings(tmp_path, "gpu-B", [])
    rows = measured(failing, bench(tmp_path))
    findings.add("steps", next(rows))
    assert "| first | 1,234 |" in (tmp_path / "gpu-B.md").read_text()
    findings.add("steps", next(rows))
    written = json.loads((tmp_path / "gpu-B.json").read_text())["found"]
    assert written == [
        ["steps", {"": "first", "ms": 1234.5}],
        ["steps", {"failed": "ZeroDivisionError: the figures"}],
    ]


@pytest.mark.parametrize("steps", [2, 6])
def test_no_profile_runs_when_the_process_ends(
    steps: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether the run ends while it is profiled, or after.

    With one that runs, the process would crash.
    """
    monkeypatch.setattr(registry, "register", lambda *_: lambda builder: builder)
    monkeypatch.setattr(atexit, "register", lambda _: None)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: 0)
    monkeypatch.delitem(sys.modules, "benchmarks.probe", raising=False)
    probe = importlib.import_module("benchmarks.probe")
    monkeypatch.delitem(sys.modules, "benchmarks.probe")
    profile = mock.Mock()
    profile.key_averages.return_value = []
    monkeypatch.setattr(probe, "profile", lambda activities: profile)
    schedule = probe.Probed(
        probe.ProbedConfig(str(tmp_path / "record"), warm_after=2, profiled=3), d_model=16
    )
    for step in range(1, steps + 1):
        schedule(step)
    schedule.write()
    assert [call[0] for call in profile.method_calls if call[0] != "key_averages"] == [
        "start",
        "stop",
    ]
    assert ("launches" in json.loads((tmp_path / "record").read_text())) == (steps == 6)
