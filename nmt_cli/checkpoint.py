"""Checkpoints: self-contained directories of tensors and JSON.

    config.json          schema, configuration, vocabulary sizes, step, run, modules of components,
                         and what computed it
    model.safetensors    the weights, or their moving average
    task/                vocabularies and tokenisation
    training.json, training.safetensors
                         optimizer and state of the run, where training can be resumed
    checksums.json       SHA-256 of each file above, written last

Tensors are saved and loaded by `weights.py`: reading the rest needs no torch. Loading a checkpoint
never unpickles or runs anything.

Checkpoints are written atomically. Loading one checks names, types and sizes before it allocates
memory for them, and raises CheckpointError if anything is missing, damaged or does not fit.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from nmt_cli import registry
from nmt_cli.config import restored
from nmt_cli.errors import CheckpointError, DataError, UsageError, shown
from nmt_cli.files import durable, staging
from nmt_cli.files.text import fingerprint, read_object
from nmt_cli.task import TASK_FILE, Task

SCHEMA = 1
CONFIG, WEIGHTS, TASK, CHECKSUMS = "config.json", "model.safetensors", "task", "checksums.json"
TRAINING_JSON, TRAINING_TENSORS = "training.json", "training.safetensors"
FILES = frozenset((CONFIG, WEIGHTS, TASK, CHECKSUMS, TRAINING_JSON, TRAINING_TENSORS))
FOLDER_OF_RUN = "checkpoints"
EXPORT = "export.json"  # in a directory that another program reads
VOCABULARY = ("source_vocabulary_size", "target_vocabulary_size", "shared_vocabulary")
ANOTHER = "Use another checkpoint, or copy this one again."


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


def link(original: Path, folder: Path) -> None:
    """Copy the checkpoint `original` to `folder`, as hard links where possible."""
    with durable.new_directory(folder) as aside:
        durable.copy_files(files_of(original), original, aside, link=True)


def read_contents(folder: Path) -> Contents:
    path = folder / CONFIG
    if not path.is_file():
        raise CheckpointError(
            f"{folder}: {_why_no_checkpoint(folder)}. A checkpoint is, for example, "
            f"RUN/{FOLDER_OF_RUN}/step-00001500."
        )
    content = read_json(path)
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
    checksums = read_json(place)
    needed = [CONFIG, WEIGHTS]
    for name in (TRAINING_JSON, TRAINING_TENSORS):
        if not training:
            checksums.pop(name, None)
        elif (folder / name).exists():
            needed.append(name)
    for name in needed:
        if name not in checksums:
            raise CheckpointError(f"{place}: damaged: it has no checksum of {name}. {ANOTHER}")
    for name, checksum in checksums.items():
        path = folder / name
        # A checkpoint may come from anybody. It must not make this program read other files.
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise CheckpointError(f"{place}: names {shown(name)}, which is outside the checkpoint")
        try:
            is_whole = fingerprint(path) == checksum
        except DataError as error:
            raise CheckpointError(f"{error}. {ANOTHER}") from error
        if not is_whole:
            raise CheckpointError(
                f"{path}: damaged: its SHA-256 is not the recorded one. {ANOTHER}"
            )


def load_task(folder: Path, module: str = "") -> Task:
    """Return the task of a checkpoint or of prepared data. `module` registers it, if known."""
    path = folder / TASK_FILE
    if not path.is_file():
        raise CheckpointError(
            f"{folder}: not a saved task: it has no {TASK_FILE}. `nmt prepare` writes it."
        )
    registry.discover()
    component = _find("task", str(read_json(path).get("name")), module, str(path))
    task: Task = component.build.load(folder)  # type: ignore[attr-defined]
    return task


def vocabulary_of(described: Contents | Task) -> dict[str, Any]:
    """Return the sizes of the vocabularies, and whether they are shared, as keywords of a model."""
    return {name: getattr(described, name) for name in VOCABULARY}


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


def locate(path: Path, say: Callable[[str], None] = lambda message: None) -> Path:
    """Return `path` if it is a checkpoint, or the newest checkpoint if it is a run, and say so.

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
        say(f"{path}: using {checkpoints[-1]}")
        return checkpoints[-1]
    if (path / FOLDER_OF_RUN).is_dir():
        raise CheckpointError(f"{path}: this run has no checkpoint yet")
    read_contents(path)
    raise CheckpointError(f"{path}: not a checkpoint: it has no {WEIGHTS}")


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


def files_of(folder: Path) -> list[Path]:
    """Return the files of a checkpoint, without hidden ones."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return sorted(path for path in files if not path.name.startswith("."))


def read_json(path: Path) -> dict[str, Any]:
    return read_object(path, CheckpointError, ANOTHER)
