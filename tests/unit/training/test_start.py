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
from nmt_cli.training.run_directory import CONFIG
from nmt_cli.training.settings import TrainingConfig
from nmt_cli.training.start import (
    SMALLEST_COMPILED,
    configuration,
    open_data,
    wants_compiled,
)

CPU = World(0, 1, torch.device("cpu"))


def model_of(parameters: int) -> nn.Module:
    return nn.Linear(parameters, 1, bias=False, device="meta")


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


def test_the_vocabulary_of_other_data(tiny_data: Path, tmp_path: Path) -> None:
    """Of the same size, it would train a model of other words without a word."""
    data = shutil.copytree(tiny_data, tmp_path / "data")
    open_data([str(data)])
    manifest = json.loads((data / "manifest.json").read_text())
    manifest["task"]["vocabularies"]["target"]["sha256"] = "0" * 64  # that of the data, not that of `task`
    (data / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(DataError, match="task: not the vocabularies of these data"):
        open_data([str(data)])
