"""The measurements for a GPU, in a tiny form on the CPU."""

from __future__ import annotations

import atexit
import importlib
import json
import sys
import time
from pathlib import Path
from unittest import mock

import pytest
import torch

from benchmarks import gpu
from benchmarks.gpu import Bench, measured
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
