"""The precision that a run records, or that a trial chooses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from nmt_cli.device import World
from nmt_cli.interfaces import Batch, Loss
from nmt_cli.packing import Packing
from nmt_cli.presets import PRESETS
from nmt_cli.training import precision
from nmt_cli.training.precision import SMALLEST, choose_precision, gain
from nmt_cli.training.run_directory import CONFIG

CPU = World(0, 1, torch.device("cpu"))
PACKING = Packing.of(torch.ones(1, 1, dtype=torch.bool))
BATCH = Batch(*(torch.zeros(1, 1, dtype=torch.long) for _ in range(3)), 1, PACKING, PACKING)


class Slow(nn.Module):
    """A model and criterion of `size` parameters; each pass takes as long as the type of its product says."""

    def __init__(self, size: int, seconds: dict[torch.dtype, float], clock: Any) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(size))
        self.seconds, self.clock = seconds, clock

    def __call__(self, model: Any, batch: Batch) -> Loss:
        self.clock.now += self.seconds[(torch.ones(1, 1) @ torch.ones(1, 1)).dtype]
        return Loss(self.weight.sum(), self.weight.sum().detach(), 1)


class Clock:
    now = 0.0

    def perf_counter(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(precision, "time", clock)
    monkeypatch.setattr(precision, "bfloat16_in_hardware", lambda: True)
    return clock


@pytest.mark.parametrize(
    ("size", "low", "expected"),
    [(SMALLEST, 0.5, "bfloat16"), (SMALLEST, 0.95, "float32"), (SMALLEST - 1, 0.5, "float32")],
)
def test_the_faster_is_chosen_for_large_models(clock: Clock, size: int, low: float, expected: str) -> None:
    model = Slow(size, {torch.float32: 1.0, torch.bfloat16: low}, clock)
    assert choose_precision(None, model, model, lambda: BATCH, CPU) == expected


def test_a_deterministic_choice_is_not_timed(clock: Clock) -> None:
    model = nn.Linear(1000, 1001)
    assert choose_precision(None, model, model, lambda: pytest.fail("tried"), CPU, deterministic=True) == "float32"


def test_the_fastest_of_several_passes_counts_and_leaves_no_gradient(clock: Clock) -> None:
    model = Slow(4, {torch.float32: 1.0, torch.bfloat16: 0.25}, clock)
    assert gain(model, model, BATCH) == pytest.approx(4.0)
    assert model.weight.grad is None


@pytest.mark.parametrize("recorded", ["bfloat16", "float32"])
def test_a_run_keeps_its_precision(clock: Clock, tmp_path: Path, recorded: str) -> None:
    content = {"training": {"precision": recorded}, "data": {"path": "data"}, "imports": []}
    (tmp_path / CONFIG).write_text(json.dumps(content))
    low = {"bfloat16": 2.0, "float32": 0.5}[recorded]  # a trial would choose the other one
    model = Slow(SMALLEST, {torch.float32: 1.0, torch.bfloat16: low}, clock)
    assert choose_precision(tmp_path, model, model, lambda: BATCH, CPU) == recorded


def test_a_cpu_without_bfloat16_is_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision, "bfloat16_in_hardware", lambda: False)
    model = nn.Linear(1000, 1001)
    assert choose_precision(None, model, model, lambda: pytest.fail("tried"), CPU) == "float32"


@pytest.mark.parametrize(("compute_capability", "expected"), [(7, "float32"), (8, "bfloat16")])
def test_a_gpu_uses_bfloat16_where_it_is_not_emulated(
    monkeypatch: pytest.MonkeyPatch, compute_capability: int, expected: str
) -> None:
    class Properties:
        major = compute_capability

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: Properties)
    gpu = World(0, 1, torch.device("cuda", 0))
    assert choose_precision(None, nn.Linear(1, 1), nn.Linear(1, 1), lambda: pytest.fail("tried"), gpu) == expected


def test_no_preset_has_a_precision() -> None:
    """The choice is left to the trial on the device at hand."""
    assert all("precision" not in name for preset in PRESETS.values() for name in preset.differs)
