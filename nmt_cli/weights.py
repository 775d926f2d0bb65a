"""The tensors of checkpoints: save, load and average them, and load models. See `checkpoint.py`."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from nmt_cli import __version__, registry
from nmt_cli.checkpoint import (
    ANOTHER,
    CHECKSUMS,
    CONFIG,
    SCHEMA,
    TASK,
    TRAINING_JSON,
    TRAINING_TENSORS,
    WEIGHTS,
    Contents,
    component_config,
    files_of,
    load_task,
    read_contents,
    read_json,
    verify,
    vocabulary_of,
)
from nmt_cli.device import fast
from nmt_cli.distributed import own_part, whole
from nmt_cli.errors import CheckpointError, UsageError
from nmt_cli.files import durable
from nmt_cli.files.text import fingerprint, write_object
from nmt_cli.model import Model
from nmt_cli.task import Task


@dataclass(frozen=True)
class SavedTraining:
    """What resuming needs besides the weights: JSON and named tensors."""

    values: dict[str, Any]
    tensors: dict[str, Tensor]


def save_checkpoint(
    folder: Path,
    contents: Contents,
    weights: Mapping[str, Tensor],
    task: Task,
    training: SavedTraining | None = None,
) -> None:
    """Write a checkpoint. An error leaves nothing behind, and keeps an older one of this name."""
    with durable.new_directory(folder) as aside:
        write_checkpoint(aside, contents, weights, task, training)


def write_checkpoint(
    aside: Path,
    contents: Contents,
    weights: Mapping[str, Tensor],
    task: Task,
    training: SavedTraining | None = None,
) -> None:
    """Write the files of a checkpoint into a directory that gets its name later."""
    (aside / TASK).mkdir()
    task.save(aside / TASK)
    entries = {"schema": SCHEMA, "nmt": __version__, **vars(contents)}
    write_object(aside / CONFIG, entries, sort_keys=True)
    _save_tensors(aside / WEIGHTS, weights)
    if training is not None:
        write_object(aside / TRAINING_JSON, training.values, sort_keys=True)
        _save_tensors(aside / TRAINING_TENSORS, training.tensors)
    checksums = {str(path.relative_to(aside)): fingerprint(path) for path in files_of(aside)}
    write_object(aside / CHECKSUMS, checksums, sort_keys=True)


def load_weights(folder: Path) -> dict[str, Tensor]:
    """Return the checkpoint's weights by parameter name, after `verify`."""
    verify(folder, training=False)
    return _load_tensors(folder / WEIGHTS)


def load_training(folder: Path) -> SavedTraining:
    if not (folder / TRAINING_JSON).is_file():
        raise CheckpointError(
            f"{folder}: has weights only (an averaged checkpoint?); training cannot resume from it"
        )
    values = read_json(folder / TRAINING_JSON)
    for name in ("state", "optimizer"):
        if not isinstance(values.get(name), dict):
            raise CheckpointError(f"{folder / TRAINING_JSON}: {name} is missing. {ANOTHER}")
    return SavedTraining(values, _load_tensors(folder / TRAINING_TENSORS))


def load_model(folder: Path, device: torch.device | str = "cpu") -> tuple[Any, Task]:
    """Return the model of a checkpoint, in evaluation mode, and its task."""
    contents = read_contents(folder)
    weights = load_weights(folder)
    task = load_task(folder / TASK, contents.modules.get("task", ""))
    task_vocabulary = vocabulary_of(task)
    for name, value in vocabulary_of(contents).items():
        if value != task_vocabulary[name]:
            raise CheckpointError(
                f"{folder}: the {name} of its model is {value}, and of its task "
                f"{task_vocabulary[name]}"
            )
    place = str(folder)
    with WithoutInitialisation():
        # A damaged configuration can ask for any size. A model on the meta device has no memory,
        # so the weights are compared with it before the real one is built.
        with torch.device("meta"):
            assign_weights(build_model(contents, place), weights, place)
        model = build_model(contents, place)
    assign_weights(model, weights, place)
    model.to(device).eval()
    fast(torch.device(device)).fit(model)
    return model, task


class WithoutInitialisation(TorchFunctionMode):
    """A context without `torch.nn.init`.

    On the meta device it imports torch's compiler, which takes seconds. Elsewhere the weights are
    overwritten anyway.
    """

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if getattr(function, "__module__", "") == "torch.nn.init":
            return args[0] if args else kwargs["tensor"]
        return function(*args, **kwargs)


def build_model(contents: Contents, place: str) -> Model:
    registry.discover()
    vocabulary = vocabulary_of(contents)
    try:
        config = component_config(contents, "model", place)
        attention = component_config(contents, "attention", place)
        model: Model = registry.build_as(Model, config, attention=attention, **vocabulary)
    except UsageError as error:
        raise CheckpointError(f"{place}: {error}") from error
    except (RuntimeError, OverflowError, ZeroDivisionError) as error:
        raise CheckpointError(
            f"{place}: no model can be built from its configuration: {error}"
        ) from error
    return model


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """Return the model's parameters by name, shared ones once.

    All ranks of a divided model must call it.
    """
    parameters = dict(model.named_parameters())
    return {name: whole(parameter.detach(), parameter) for name, parameter in parameters.items()}


def assign_weights(model: nn.Module, weights: Mapping[str, Tensor], place: str) -> None:
    """Copy `weights` into the model's parameters.

    Raises:
        CheckpointError: names or shapes differ, or a weight is not of real numbers.
    """
    parameters = dict(model.named_parameters())
    unfit = f"{place}: weights and configuration do not fit: "
    different = sorted(parameters.keys() ^ weights.keys())
    if different:
        raise CheckpointError(
            f"{unfit}{different[0]} is in one of them only ({len(different)} differ)"
        )
    for name, parameter in parameters.items():
        weight = own_part(weights[name], parameter)
        if not weight.is_floating_point():
            raise CheckpointError(
                f"{place}: damaged: {name} is of type {weight.dtype}, not of real numbers"
            )
        if parameter.shape != weight.shape:
            raise CheckpointError(
                f"{unfit}{name} is {list(weight.shape)}, expected {list(parameter.shape)}"
            )
        with torch.no_grad():
            parameter.copy_(weight)


def average_weights(folders: Sequence[Path]) -> dict[str, Tensor]:
    """Return the mean of every weight, summed in float64 (section 6.1).

    One checkpoint is in memory at a time.
    """
    first = load_weights(folders[0])
    totals = {name: tensor.double() for name, tensor in first.items()}
    shapes = {name: tensor.shape for name, tensor in first.items()}
    for folder in folders[1:]:
        weights = load_weights(folder)
        for name in sorted(totals.keys() | weights.keys()):
            shape = weights[name].shape if name in weights else None
            if shape != shapes.get(name):
                difference = f"{name} is another tensor than in {folders[0]}"
                raise CheckpointError(f"{folder}: {difference}: different models")
            totals[name] += weights[name]
    means = {}
    for name, tensor in first.items():  # one after the other, as the totals are large
        means[name] = (totals.pop(name) / len(folders)).to(tensor.dtype)
    return means


def _save_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    host_tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    try:
        save_file(host_tensors, path)
    except SafetensorError as error:
        if os.strerror(errno.ENOSPC) in str(error):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path)) from error
        raise OSError(f"{path}: cannot write: {error}") from error
    with suppress(OSError):  # some file systems have no permissions
        shutil.copymode(path.with_name(CONFIG), path)  # safetensors ignores the user's umask


def _load_tensors(path: Path) -> dict[str, Tensor]:
    try:
        tensors: dict[str, Tensor] = load_file(path)
    except (SafetensorError, OSError, ValueError) as error:
        raise CheckpointError(f"{path}: not a readable safetensors file: {error}") from error
    return tensors
