"""From checkpoints to a translator."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from nmt_cli.checkpoint import load_model, resolve
from nmt_cli.decoding.ensemble import Ensemble
from nmt_cli.decoding.options import TranslateOptions, with_options
from nmt_cli.decoding.translator import Translator
from nmt_cli.device import choose_device, is_out_of_memory
from nmt_cli.errors import CheckpointError, NmtError, UsageError
from nmt_cli.interfaces import Task


def load_translator(
    checkpoints: Sequence[Path],
    device: str = "auto",
    choices: Mapping[str, Any] | None = None,
    say: Callable[[str], None] = lambda message: None,
) -> Translator:
    """The translator of a checkpoint, or of several as an ensemble.

    Args:
        checkpoints: checkpoints, or folders of runs, whose newest checkpoint is taken.
        device: auto, cpu, cuda or cuda:N.
        choices: options by name, as `with_options` takes them; the others are those of the task.
        say: is told which checkpoint stands for a run.

    Raises:
        UsageError: no checkpoint is given, or there is no such device or option.
        CheckpointError: one of them is none, is damaged, or does not fit the others.
    """
    if not checkpoints:
        raise UsageError("give a checkpoint: the folder that `nmt train` or `nmt average` wrote")
    place = choose_device(device)
    folders = [_resolved(path, say) for path in checkpoints]
    loaded: list[tuple[Any, Task]] = [_loaded(folder, place) for folder in folders]
    models, tasks = [model for model, _ in loaded], [task for _, task in loaded]
    for folder, task in zip(folders[1:], tasks[1:], strict=True):
        check_same_vocabularies(folders[0], tasks[0], folder, task)
    model = models[0] if len(models) == 1 else Ensemble(models)
    return Translator(tasks[0], model, place, task_options(tasks[0], choices or {}))


def task_options(task: Task, chosen: Mapping[str, Any]) -> TranslateOptions:
    """What the user chose, over what the task says, over the defaults of translation."""
    return with_options(with_options(TranslateOptions(), task.search_defaults), chosen)


def check_same_vocabularies(first: Path, first_task: Task, other: Path, other_task: Task) -> None:
    """Raises CheckpointError unless both tasks give each id the same meaning, on either side."""
    for side in ("source", "target"):
        ours, theirs = _vocabulary(first_task, side), _vocabulary(other_task, side)
        if ours == theirs and first_task.name == other_task.name:
            continue
        raise CheckpointError(
            f"{other} and {first} cannot be an ensemble: their {side} vocabularies differ "
            f"({len(theirs)} and {len(ours)} entries). Its models must be trained on the same prepared data, or on "
            "data prepared with the same subwords."
        )


def _vocabulary(task: Task, side: str) -> list[str]:
    if side == "source":
        return task.source_tokens(range(task.source_vocabulary_size))
    return task.target_tokens(range(task.target_vocabulary_size))


def _loaded(folder: Path, place: torch.device) -> tuple[Any, Task]:
    try:
        return load_model(folder, place)
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        raise NmtError(f"{folder}: out of memory: {place} has no room for this model; choose another device") from error


def _resolved(path: Path, say: Callable[[str], None]) -> Path:
    folder = resolve(path)
    if folder != path:
        say(f"{path}: a run; its newest checkpoint is used: {folder}")
    return folder
