"""What the device and the size of the model suggest: precision, which a resumed run keeps, and compiled layers."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from torch import nn

from nmt_cli import registry
from nmt_cli.commands.train import TrainOptions
from nmt_cli.distributed import World
from nmt_cli.errors import DataError
from nmt_cli.training import start
from nmt_cli.training.run_directory import CONFIG
from nmt_cli.training.settings import TrainingConfig
from nmt_cli.training.start import (
    SMALLEST_COMPILED,
    SMALLEST_IN_BFLOAT16,
    choose_precision,
    configuration,
    open_data,
    wants_compiled,
)

CPU = World(0, 1, torch.device("cpu"))


def model_of(parameters: int) -> nn.Module:
    return nn.Linear(parameters, 1, bias=False, device="meta")


@pytest.mark.parametrize(
    ("parameters", "in_hardware", "deterministic", "expected"),
    [
        (SMALLEST_IN_BFLOAT16, True, False, "bfloat16"),
        (SMALLEST_IN_BFLOAT16 - 1, True, False, "float32"),
        (SMALLEST_IN_BFLOAT16, False, False, "float32"),
        (SMALLEST_IN_BFLOAT16, True, True, "float32"),
    ],
)
def test_a_cpu_uses_bfloat16_for_large_models_if_it_has_it(
    monkeypatch: pytest.MonkeyPatch, parameters: int, in_hardware: bool, deterministic: bool, expected: str
) -> None:
    monkeypatch.setattr(start, "bfloat16_in_hardware", lambda: in_hardware)
    assert choose_precision(model_of(parameters), CPU, deterministic) == expected


@pytest.mark.parametrize(("flag", "small", "large"), [(None, False, True), (True, True, True), (False, False, False)])
def test_large_models_are_compiled(flag: bool | None, small: bool, large: bool) -> None:
    settings = TrainingConfig(compile=flag)
    chosen = [wants_compiled(model_of(SMALLEST_COMPILED - less), settings) for less in (1, 0)]
    assert chosen == [small, large]


@pytest.mark.parametrize("recorded", ["bfloat16", "float32"])
def test_a_run_keeps_its_precision(tmp_path: Path, recorded: str) -> None:
    registry.discover()
    content = {"training": {"precision": recorded}, "data": {"path": "data"}, "imports": []}
    (tmp_path / CONFIG).write_text(json.dumps(content))
    for flags, expected in (({}, recorded), ({"precision": "float32"}, "float32")):
        assert configuration(TrainOptions(out=tmp_path), flags).training.precision == expected


@pytest.mark.parametrize(("compute_capability", "expected"), [(6, "float32"), (7, "float16"), (8, "bfloat16")])
def test_a_gpu_uses_the_type_that_it_computes_fast(
    monkeypatch: pytest.MonkeyPatch, compute_capability: int, expected: str
) -> None:
    class Properties:
        major = compute_capability

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: Properties)
    assert choose_precision(model_of(1), World(0, 1, torch.device("cuda", 0))) == expected


def test_the_vocabulary_of_other_data(tiny_data: Path, tmp_path: Path) -> None:
    """Of the same size, it would train a model of other words without a word."""
    data = shutil.copytree(tiny_data, tmp_path / "data")
    open_data([str(data)])
    manifest = json.loads((data / "manifest.json").read_text())
    manifest["task"]["vocabularies"]["target"]["sha256"] = "0" * 64  # that of the data, not that of `task`
    (data / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(DataError, match="task: not the vocabularies of these data"):
        open_data([str(data)])
