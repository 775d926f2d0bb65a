"""Checkpoints: self-contained directories of tensors and JSON.

    config.json          schema, configuration, vocabulary sizes, step, run, modules of components,
                         and what computed it
    model.safetensors    the weights, or their moving average
    task/                vocabularies and tokenisation
    training.json, training.safetensors
                         optimizer and state of the run, where training can be resumed
    checksums.json       SHA-256 of each file above, written last

Loading a checkpoint never unpickles or runs anything.

Checkpoints are written atomically. Loading one checks names, types and sizes before it allocates
memory for them, and raises CheckpointError if anything is missing, damaged or does not fit.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from nmt_cli import __version__, registry
from nmt_cli.config import restored
from nmt_cli.device import fast
from nmt_cli.distributed import own_part, whole
from nmt_cli.errors import CheckpointError, DataError, UsageError, shown
from nmt_cli.files import durable, staging
from nmt_cli.files.text import fingerprint, read_object, write_object
from nmt_cli.model import Model
from nmt_cli.task import TASK_FILE, Task

SCHEMA = 1
CONFIG, WEIGHTS, TASK, CHECKSUMS = "config.json", "model.safetensors", "task", "checksums.json"
TRAINING_JSON, TRAINING_TENSORS = "training.json", "training.safetensors"
FILES = frozenset((CONFIG, WEIGHTS, TASK, CHECKSUMS, TRAINING_JSON, TRAINING_TENSORS))
FOLDER_OF_RUN = "checkpoints"
EXPORT = "export.json"  # in a directory that another program reads
VOCABULARY = ("source_vocabulary_size", "target_vocabulary_size", "shared_vocabulary")
_ANOTHER = "Use another checkpoint, or copy this one again."


@dataclass(frozen=True)
class Contents:
    """The content of a checkpoint's config.json."""

    sections: dict[str, Any]  # of the configuration
    source_vocabulary_size: int = field(metadata={"minimum": 1})
    target_vocabulary_size: int = field(metadata={"minimum": 1})
    shared_vocabulary: bool
    step: int
    run: str  # the run's fingerprint
    # By kind: the Python module of each component.
    modules: dict[str, str] = field(default_factory=dict)
    # Path, run and step of the checkpoint that the run started from.
    origin: dict[str, Any] | None = None
    # The device of the main rank and what computed on it: see `device.Plain.name`.
    computed_by: str | None = None


@dataclass(frozen=True)
class SavedTraining:
    """What resuming needs besides the weights: JSON and named tensors."""

    values: dict[str, Any]
    tensors: dict[str, Tensor]


def save(
    folder: Path,
    contents: Contents,
    weights: Mapping[str, Tensor],
    task: Task,
    training: SavedTraining | None = None,
) -> None:
    """Write a checkpoint. An error leaves nothing behind, and keeps an older one of this name."""
    with durable.new_directory(folder) as aside:
        write(aside, contents, weights, task, training)


@contextmanager
def new(out: Path, overwrite: bool) -> Iterator[Path]:
    """Yield a directory to write a checkpoint in, which is not of a run: see `staging.staged`."""
    place = Path(os.path.realpath(out))
    for folder in place.parents:
        if folder.name == FOLDER_OF_RUN and resumable_of(folder.parent):
            raise UsageError(
                f"--out {out}: is among a run's checkpoints; choose another name, such as "
                "RUN/averaged"
            )
    files = (CONFIG, WEIGHTS, TASK, CHECKSUMS)
    with staging.staged(place, overwrite=overwrite, allowed=files, marker=CHECKSUMS) as aside:
        yield aside


def write(
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
    checksums = {str(path.relative_to(aside)): fingerprint(path) for path in _files(aside)}
    write_object(aside / CHECKSUMS, checksums, sort_keys=True)


def link(original: Path, folder: Path) -> None:
    """Copy the checkpoint `original` to `folder`, as hard links where possible."""
    with durable.new_directory(folder) as aside:
        durable.copy_files(_files(original), original, aside, link=True)


def read_contents(folder: Path) -> Contents:
    path = folder / CONFIG
    if not path.is_file():
        raise CheckpointError(
            f"{folder}: {_why_no_checkpoint(folder)}. A checkpoint is, for example, "
            f"RUN/{FOLDER_OF_RUN}/step-00001500."
        )
    content = _read_object(path)
    schema = content.get("schema")
    if schema != SCHEMA:
        message = f"{path}: schema {shown(schema)}; this version of nmt reads schema {SCHEMA}"
        if "model_type" in content:  # an entry that other programs have
            message += "; `nmt import` reads models of other programs"
        raise CheckpointError(message)
    values = {entry.name: content.get(entry.name) for entry in fields(Contents)}
    try:
        contents: Contents = restored(Contents, values, str(path))
    except UsageError as error:
        raise CheckpointError(str(error)) from error
    return contents


def _why_no_checkpoint(folder: Path) -> str:
    if folder.is_dir():
        return f"not a checkpoint: it has no {CONFIG}"
    old = durable.beside(folder, "old")
    if old.is_dir():
        return f"no such directory, but its earlier version is {old}: rename that one to use it"
    return "no such directory"


def verify(folder: Path, training: bool = True) -> None:
    """Compare every file with its checksum. Without `training`, leave out the files for resuming.

    Raises:
        CheckpointError: a file is damaged or missing, or has no checksum.
    """
    place = folder / CHECKSUMS
    checksums = _read_object(place)
    needed = [CONFIG, WEIGHTS]
    for name in (TRAINING_JSON, TRAINING_TENSORS):
        if not training:
            checksums.pop(name, None)
        elif (folder / name).exists():
            needed.append(name)
    for name in needed:
        if name not in checksums:
            raise CheckpointError(f"{place}: damaged: it has no checksum of {name}. {_ANOTHER}")
    for name, checksum in checksums.items():
        path = folder / name
        # A checkpoint may come from anybody. It must not make this program read other files.
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise CheckpointError(f"{place}: names {shown(name)}, which is outside the checkpoint")
        try:
            is_whole = fingerprint(path) == checksum
        except DataError as error:
            raise CheckpointError(f"{error}. {_ANOTHER}") from error
        if not is_whole:
            raise CheckpointError(
                f"{path}: damaged: its SHA-256 is not the recorded one. {_ANOTHER}"
            )


def load_task(folder: Path, module: str = "") -> Task:
    """Return the task of a checkpoint or of prepared data. `module` registers it, if known."""
    path = folder / TASK_FILE
    if not path.is_file():
        raise CheckpointError(
            f"{folder}: not a saved task: it has no {TASK_FILE}. `nmt prepare` writes it."
        )
    registry.discover()
    component = _find("task", str(_read_object(path).get("name")), module, str(path))
    task: Task = component.build.load(folder)  # type: ignore[attr-defined]
    return task


def load_weights(folder: Path) -> dict[str, Tensor]:
    """Return the checkpoint's weights by parameter name, after `verify`."""
    verify(folder, training=False)
    return _load_tensors(folder / WEIGHTS)


def load_training(folder: Path) -> SavedTraining:
    if not (folder / TRAINING_JSON).is_file():
        raise CheckpointError(
            f"{folder}: has weights only (an averaged checkpoint?); training cannot resume from it"
        )
    values = _read_object(folder / TRAINING_JSON)
    for name in ("state", "optimizer"):
        if not isinstance(values.get(name), dict):
            raise CheckpointError(f"{folder / TRAINING_JSON}: {name} is missing. {_ANOTHER}")
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


def vocabulary_of(described: Contents | Task) -> dict[str, Any]:
    """Return the sizes of the vocabularies, and whether they are shared, as keywords of a model."""
    return {name: getattr(described, name) for name in VOCABULARY}


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


def checkpoints_of(run: Path) -> list[Path]:
    """Return the checkpoints of `--save-every` and of the last step, the oldest first."""
    return [folder for folder in resumable_of(run) if folder.name.startswith("step-")]


def resumable_of(run: Path) -> list[Path]:
    """Return all checkpoints of a run, the oldest first.

    They are called `step-N`, `best-N`, and, if a signal stopped the run, `latest-N`.
    """
    kinds = ("latest", "best", "step")  # of one step, the last has the fewest actions pending
    order = {}
    for folder in sorted((run / FOLDER_OF_RUN).glob("*")):
        match = re.fullmatch(r"(latest|best|step)-(\d{8,})", folder.name)
        if match and folder.is_dir():
            order[folder] = (int(match[2]), kinds.index(match[1]))
    return sorted(order, key=order.__getitem__)


def locate(path: Path) -> Path:
    """Return `path` if it is a checkpoint, or the newest checkpoint if it is a run.

    Raises:
        UsageError: it is an export.
        CheckpointError: it is anything else.
    """
    if (path / EXPORT).is_file():
        raise UsageError(
            f"{path}: not a checkpoint, but an export for another program (see --engine)"
        )
    if (path / CONFIG).is_file() and (path / WEIGHTS).is_file():
        return path
    checkpoints = resumable_of(path)
    if checkpoints:
        return checkpoints[-1]
    if (path / FOLDER_OF_RUN).is_dir():
        raise CheckpointError(f"{path}: this run has no checkpoint yet")
    read_contents(path)
    raise CheckpointError(f"{path}: not a checkpoint: it has no {WEIGHTS}")


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


def component_config(contents: Contents, kind: str, place: str) -> Any:
    section = contents.sections.get(kind)
    if not isinstance(section, Mapping) or "name" not in section:
        raise CheckpointError(f"{place}: its configuration has no section {shown(kind)}")
    component = _find(kind, str(section["name"]), contents.modules.get(kind, ""), place)
    settings = {name: value for name, value in section.items() if name != "name"}
    return restored(component.config, settings, place)


def _find(kind: str, name: str, module: str, place: str) -> registry.Component:
    try:
        return registry.find(kind, name)
    except UsageError as error:
        problem = str(error)
        if module:
            problem = (
                f"its {kind} {shown(name)} comes from the module {module}: give --import {module}"
            )
        raise CheckpointError(f"{place}: {problem}") from error


def _files(folder: Path) -> list[Path]:
    """Return the files of a checkpoint, without hidden ones."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return sorted(path for path in files if not path.name.startswith("."))


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


def _read_object(path: Path) -> dict[str, Any]:
    return read_object(path, CheckpointError, _ANOTHER)
