"""`nmt train` with a model so small that a run takes a second: settings, a run, flags."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from nmt_cli import registry
from nmt_cli.commands.train import TrainOptions
from nmt_cli.config import RunConfig
from nmt_cli.distributed import World
from nmt_cli.training.run import Run
from nmt_cli.training.start import build_run, configuration, open_data, train

SIZES = {"num_layers": 1, "d_model": 16, "d_ff": 32, "num_heads": 2}
TINY = (
    SIZES
    | {
        "batch_tokens": 500,
        "micro_batches": 2,
        "warmup_steps": 20,
        "max_steps": 12,
        "save_every": 4,
        "log_every": 5,
    }
    # Given, because measuring them takes time.
    | {
        "device": "cpu",
        "sustained_tflops": 1.0,
        "peak_tflops": 1.0,
    }
)


def long_run(data: Path) -> Run:
    """Return a run of 1,000 steps with a warm-up of one, in three epochs at most.

    Nothing is written.
    """
    registry.discover()
    limits = {
        "batch_tokens": 500,
        "max_epochs": 3,
        "max_steps": 1000,
        "warmup_steps": 1,
        "device": "cpu",
    }
    return built(configuration(TrainOptions(), SIZES | limits), data)


def built(config: RunConfig, data: Path, ranks: int = 1) -> Run:
    """Return a run on a CPU, or its main rank's. Nothing is written."""
    world = World(0, ranks, torch.device("cpu"))
    return build_run(config, *open_data([str(data)]), world, None, data, quiet=True)


def flags(**changes: Any) -> list[str]:
    """Return the flags of `nmt train` for these changes of `TINY`."""
    return words(TINY | changes)


def words(settings: Mapping[str, Any]) -> list[str]:
    return [f"--{name.replace('_', '-')}={value}" for name, value in settings.items()]


def run(data: Path, out: Path, **changes: Any) -> None:
    """Train in this process, with these changes of `TINY`."""
    registry.discover()
    train(TrainOptions((str(data),), out), TINY | changes)


def metrics(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
