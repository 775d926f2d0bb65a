"""The measurements for a GPU, in a tiny form on the CPU."""

from __future__ import annotations

import atexit
import importlib
import itertools
import json
import sys
import time
from pathlib import Path
from unittest import mock

import pytest
import torch

from benchmarks import gpu
from benchmarks.gpu import Bench, NotAvailable, histogram, measured
from nmt_cli import registry


def bench(folder: Path, seconds: float = 300.0) -> Bench:
    return Bench(torch.device("cpu"), True, folder, time.monotonic() + seconds, {"tiny": gpu.TINY}, 256, 6)


def test_steps_and_kernels_are_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "compile", lambda function: function)
    shared = bench(tmp_path)
    products = "\n".join(measured(gpu.products, shared))
    assert "| tiny 256 x 16 x 48 |" in products
    assert shared.peak > 0
    attention = "\n".join(measured(gpu.attention, shared))
    assert "| scaled_dot_product_attention, padded |" in attention
    assert "| variable length | not available" in attention  # needs a GPU
    steps = "\n".join(measured(gpu.steps, shared))
    assert "Failed" not in products + attention + steps
    assert "| tiny, default | " in steps
    assert "the slowest" in steps


def test_a_part_that_fails_is_reported(tmp_path: Path) -> None:
    def wrong(_: Bench) -> list[str]:
        """A part."""
        raise ZeroDivisionError("by zero")

    def absent(_: Bench) -> list[str]:
        """A part."""
        raise NotAvailable("there is no such flag")

    shared = bench(tmp_path)
    assert "Failed: ZeroDivisionError: by zero" in list(measured(wrong, shared))  # type: ignore[arg-type]
    assert "Not available: there is no such flag" in list(measured(absent, shared))  # type: ignore[arg-type]


def test_an_unknown_flag_is_not_available(tmp_path: Path) -> None:
    with pytest.raises(NotAvailable, match="--no-such-flag"):
        bench(tmp_path).execute("train", "data", "--no-such-flag")


def test_nothing_runs_when_the_time_is_over(tmp_path: Path) -> None:
    with pytest.raises(NotAvailable, match="no time left"):
        bench(tmp_path, seconds=-60).execute("train", "--list-presets")


def test_a_histogram_counts_every_value() -> None:
    lines = histogram([1.0, 1.0, 1.0, 2.0, 50.0], bins=2, width=3).splitlines()
    assert lines == ["     1.00 ### 3", "     1.50 ## 2", "    50.00 the slowest"]


def test_parts_are_chosen_on_the_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    assert gpu.arguments(["--part", "save", "eighth"]).parts == ["save", "eighth"]
    assert set(gpu.arguments([]).parts) == set(gpu.PARTS)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(sys, "argv", ["gpu"])
    with pytest.raises(SystemExit, match="--device cpu --tiny"):
        gpu.main()


@pytest.mark.parametrize("steps", [2, 6])
def test_no_profile_runs_when_the_process_ends(steps: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether the run ends while it is profiled, or after; with one that runs, the process would crash."""
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
    schedule = probe.Probed(probe.ProbedConfig(str(tmp_path / "record"), warm_after=2, profiled=3), d_model=16)
    for step in range(1, steps + 1):
        schedule(step)
    schedule.write()
    assert [call[0] for call in profile.method_calls if call[0] != "key_averages"] == ["start", "stop"]
    assert ("launches" in json.loads((tmp_path / "record").read_text())) == (steps == 6)


@pytest.mark.parametrize(("steps", "profiled"), [(4, 0), (200, gpu.PROFILED)])
def test_a_run_is_profiled_and_logged_only_where_that_disturbs_nothing(
    steps: int, profiled: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log line waits for the GPU, and a short run ends before its profile does."""
    shared, calls = bench(tmp_path), list[tuple[object, ...]]()
    monkeypatch.setattr(Bench, "execute", lambda self, *words, **_: calls.append(words))
    with pytest.raises(FileNotFoundError):  # nothing has run
        shared.train("a", gpu.TINY, steps=steps)
    [words] = calls
    flags = dict(itertools.pairwise(words))
    assert flags["--profiled"] == str(profiled)
    assert int(str(flags["--log-every"])) > steps


def test_the_schedule_that_records_is_imported_by_nmt_train_only() -> None:
    """Here it would become one of the components that the contracts build, and write at the end of the tests."""
    assert "probed" not in registry.names("schedule")
