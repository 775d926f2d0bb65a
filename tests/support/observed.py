"""Runs with observers: the settings that switch one on, and what a resumed run has in common."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import Tensor

from nmt_cli import checkpoint, registry
from nmt_cli.annexes.doctor.resume import contents
from nmt_cli.config import fields
from nmt_cli.training.run import RAW
from nmt_cli.weights import load_training, load_weights

OF_RUN = ("config.json", "metrics.jsonl", "summary.json", "checkpoints", "best")
"""What the core writes. Other files, such as TensorBoard's, have times in them."""


def switched_on(observer: registry.Component) -> dict[str, Any]:
    """Return a value for each of its settings that is not the default."""
    values = {}
    for field, hint in fields(observer.config):
        if isinstance(field.default, bool):
            values[field.name] = not field.default
        elif isinstance(field.default, int):
            values[field.name] = field.default + 2
        elif isinstance(field.default, float):
            values[field.name] = 0.5
        else:
            assert str in (hint, *getattr(hint, "__args__", ())), f"{field.name}: give a value here"
            values[field.name] = next(iter(field.metadata["choices"]), "value")
    return values


def trained(run: Path) -> dict[str, Tensor]:
    """Return the weights that training would go on from."""
    folder = checkpoint.locate(run)
    tensors = load_training(folder).tensors
    raw = {
        name.removeprefix(RAW): tensor for name, tensor in tensors.items() if name.startswith(RAW)
    }
    return raw or load_weights(folder)


def of_run(run: Path) -> dict[str, Any]:
    return {
        name: content for name, content in contents(run).items() if name.split("/")[0] in OF_RUN
    }
