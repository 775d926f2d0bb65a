"""Checkpoints: self-contained folders of plain tensors and JSON. Nothing in one is ever unpickled or run.

    config.json          schema, what was trained (every section of the configuration), step, the run's fingerprint
    model.safetensors    the weights
    task/                vocabularies and tokenisation
    training.json, training.safetensors   optimizer, cursor and counters; only where training can go on from here
    checksums.json       SHA-256 of each file above; written last

A folder is written under a hidden name beside its place, flushed to the disk, and renamed: it is whole or absent.
Whoever reads one trusts nothing in it: names, types and sizes are compared before any memory is taken for them.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from nmt_cli import __version__, registry
from nmt_cli.config import restored
from nmt_cli.errors import CheckpointError, UsageError
from nmt_cli.files import durable
from nmt_cli.interfaces import TASK_FILE, Task

SCHEMA = 1
CONFIG, WEIGHTS, TASK, CHECKSUMS = "config.json", "model.safetensors", "task", "checksums.json"
TRAINING_JSON, TRAINING_TENSORS = "training.json", "training.safetensors"
FOLDER_OF_RUN = "checkpoints"
_NAME_IN_RUN = r"(step|latest)-\d{8,}"
_LARGEST_JSON = 1 << 26  # bytes; no such file of ours comes near


@dataclass(frozen=True)
class Contents:
    """What a checkpoint says of its model: configuration sections, vocabulary sizes, step and run."""

    sections: Mapping[str, Any]
    source_vocabulary_size: int
    target_vocabulary_size: int
    shared_vocabulary: bool
    step: int
    run: str

    def to_json(self) -> dict[str, Any]:
        return {"schema": SCHEMA, "nmt": __version__, **vars(self)}


_CONTENTS: dict[str, type[Any]] = {
    "sections": dict,
    "source_vocabulary_size": int,
    "target_vocabulary_size": int,
    "shared_vocabulary": bool,
    "step": int,
    "run": str,
}
"""The types of `Contents` as JSON has them."""


@dataclass(frozen=True)
class TrainingState:
    """What training needs besides the weights: named tensors, and JSON."""

    values: dict[str, Any]
    tensors: dict[str, Tensor]


def save(
    folder: Path, contents: Contents, weights: Mapping[str, Tensor], task: Task, training: TrainingState | None = None
) -> None:
    """Writes a checkpoint, whole or not at all.

    Raises:
        CheckpointError: the disk has no room for it.
        OSError: it cannot be written; nothing is left behind, and an older checkpoint of that name still stands.
    """
    tensors = [*weights.values(), *(training.tensors.values() if training else [])]
    durable.recover(folder)
    _check_room(folder, sum(tensor.numel() * tensor.element_size() for tensor in tensors))
    aside = durable.part_of(folder)
    try:
        (aside / TASK).mkdir(parents=True)
        task.save(aside / TASK)
        _write_json(aside / CONFIG, contents.to_json())
        _save_tensors(aside / WEIGHTS, weights)
        if training is not None:
            _write_json(aside / TRAINING_JSON, training.values)
            _save_tensors(aside / TRAINING_TENSORS, training.tensors)
        _write_json(aside / CHECKSUMS, {str(path.relative_to(aside)): _sha256(path) for path in _files(aside)})
        durable.put_in_place(aside, folder)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise


def link(original: Path, folder: Path) -> None:
    """A second checkpoint `folder` with the same files as `original`, sharing their room on the disk where it can."""
    durable.recover(folder)
    aside = durable.part_of(folder)
    try:
        shutil.copytree(original, aside, copy_function=_link_or_copy)
        durable.put_in_place(aside, folder)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise


def read_contents(folder: Path) -> Contents:
    """The checkpoint's own description.

    Raises:
        CheckpointError: the folder is none, or one of a schema that this version does not know.
    """
    path = folder / CONFIG
    if not folder.is_dir():
        if durable.old_of(folder).is_dir():
            raise CheckpointError(
                f"{folder}: its replacement was cut off; the former checkpoint is {durable.old_of(folder)}: rename it, "
                "or make the new one again"
            )
        raise CheckpointError(
            f"{folder}: no such checkpoint folder. `nmt train` writes them under RUN/{FOLDER_OF_RUN}, `nmt "
            f"average` where --out says."
        )
    if not path.is_file():
        raise CheckpointError(
            f"{folder}: not a checkpoint: it has no {CONFIG}. A checkpoint is a folder such as "
            f"RUN/{FOLDER_OF_RUN}/step-00001500."
        )
    content = _read_json(path)
    if content.get("schema") != SCHEMA:
        raise CheckpointError(f"{path}: schema {content.get('schema')!r}; this version of nmt reads schema {SCHEMA}")
    for name, kind in _CONTENTS.items():
        value = content.get(name)
        if type(value) is not kind or (isinstance(value, int) and name.endswith("_size") and value < 1):
            raise CheckpointError(
                f"{path}: {name} is {value!r}; expected {'a positive' if kind is int else 'a'} {kind.__name__}. "
                "It is not what `nmt train` wrote."
            )
    return Contents(**{name: content[name] for name in _CONTENTS})


def fingerprint(description: Mapping[str, Any]) -> str:
    """A short name for everything that defines a run: the same description gives the same name."""
    return hashlib.sha256(json.dumps(description, sort_keys=True).encode()).hexdigest()[:16]


def verify(folder: Path) -> None:
    """Compares every file with its checksum.

    Raises:
        CheckpointError: a file is missing, truncated, altered or has no checksum; the message names it.
    """
    recorded = _read_json(folder / CHECKSUMS)
    for name in (CONFIG, WEIGHTS, TRAINING_JSON, TRAINING_TENSORS):
        needed = name in (CONFIG, WEIGHTS) or (folder / name).exists()
        if needed and name not in recorded:
            raise CheckpointError(
                f"{folder / CHECKSUMS}: damaged: it has no checksum of {name}. Use another checkpoint."
            )
    for name, expected in recorded.items():
        path = folder / name
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise CheckpointError(f"{folder / CHECKSUMS}: names {name!r}, which is outside the checkpoint")
        if not path.is_file():
            raise CheckpointError(
                f"{path}: missing from the checkpoint. Use another checkpoint, or copy this one again."
            )
        if _sha256(path) != expected:
            raise CheckpointError(
                f"{path}: damaged: its SHA-256 is not the recorded one. Use another checkpoint, or copy this one again."
            )


def load_task(folder: Path) -> Task:
    """The task whose folder this is (a checkpoint's `task`, or that of prepared data).

    Raises:
        CheckpointError: the folder holds none.
        UsageError: no such task is registered.
    """
    path = folder / TASK_FILE
    if not path.is_file():
        raise CheckpointError(f"{folder}: not a task's folder: it has no {TASK_FILE}. `nmt prepare` writes it.")
    name = str(_read_json(path).get("name"))
    registry.discover()
    try:
        component = registry.find("task", name)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from error
    task: Task = component.build.load(folder)  # type: ignore[attr-defined]
    return task


def load_weights(folder: Path) -> dict[str, Tensor]:
    """The checkpoint's weights, verified, by parameter name."""
    verify(folder)
    return _load_tensors(folder / WEIGHTS)


def load_training(folder: Path) -> TrainingState:
    """What training needs to go on from this checkpoint.

    Raises:
        CheckpointError: the checkpoint holds weights alone, is damaged, or lacks something.
    """
    if not (folder / TRAINING_JSON).is_file():
        raise CheckpointError(f"{folder}: holds weights alone (an averaged checkpoint?); training cannot go on from it")
    values = _read_json(folder / TRAINING_JSON)
    for name, kind in (("progress", dict), ("optimizer", dict), ("left", list)):
        if not isinstance(values.get(name, [] if name == "left" else None), kind):
            raise CheckpointError(
                f"{folder / TRAINING_JSON}: {name} is missing, or no {kind.__name__}. Use another checkpoint."
            )
    return TrainingState(values, _load_tensors(folder / TRAINING_TENSORS))


def load_model(folder: Path, device: torch.device | str = "cpu") -> tuple[Any, Task]:
    """The model of a checkpoint, ready to translate, and its task.

    Raises:
        CheckpointError: the folder is no checkpoint, a damaged one, or one whose weights do not fit its configuration.
    """
    contents = read_contents(folder)
    weights = load_weights(folder)
    task = load_task(folder / TASK)
    _check_vocabulary(contents, task, str(folder))
    with torch.device("meta"):  # takes no memory, whatever sizes the configuration claims
        check_fit(build_model(contents, str(folder)), weights, str(folder))
    model = build_model(contents, str(folder))
    assign_weights(model, weights, str(folder))
    return model.to(device).eval(), task


def build_model(contents: Contents, origin: str) -> nn.Module:
    """A model of the described shape, with fresh weights."""
    registry.discover()
    try:
        model_config, attention = (_component(contents.sections, kind, origin) for kind in ("model", "attention"))
        model: nn.Module = registry.build(
            model_config,
            attention=attention,
            source_vocabulary_size=contents.source_vocabulary_size,
            target_vocabulary_size=contents.target_vocabulary_size,
            shared_vocabulary=contents.shared_vocabulary,
        )
    except UsageError as error:
        raise CheckpointError(f"{origin}: {error}") from error
    except (RuntimeError, OverflowError, ZeroDivisionError) as error:
        raise CheckpointError(f"{origin}: no model can be built from its configuration: {error}") from error
    return model


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """The model's parameters by name, each shared one once."""
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


def assign_weights(model: nn.Module, weights: Mapping[str, Tensor], origin: str) -> None:
    """Copies `weights` into the model's parameters.

    Raises:
        CheckpointError: names or shapes differ.
    """
    check_fit(model, weights, origin)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(weights[name])


def check_fit(model: nn.Module, weights: Mapping[str, Tensor], origin: str) -> None:
    """Raises CheckpointError unless `weights` has the names and shapes of the model's parameters."""
    parameters = dict(model.named_parameters())
    different = sorted(parameters.keys() ^ weights.keys())
    if different:
        raise CheckpointError(
            f"{origin}: weights and configuration do not fit: {different[0]} stands in one of them only "
            f"({len(different)} differ)"
        )
    for name, parameter in parameters.items():
        if parameter.shape != weights[name].shape:
            raise CheckpointError(
                f"{origin}: weights and configuration do not fit: {name} is {list(weights[name].shape)}, "
                f"expected {list(parameter.shape)}"
            )


def _check_vocabulary(contents: Contents, task: Task, origin: str) -> None:
    """An id of the tokenizer that the model does not know would be found out only in the middle of a translation."""
    for side in ("source", "target"):
        ours, theirs = getattr(contents, f"{side}_vocabulary_size"), getattr(task, f"{side}_vocabulary_size")
        if ours != theirs:
            raise CheckpointError(
                f"{origin}: its {side} vocabulary has {theirs} entries where the model has {ours}: the two do not "
                "belong together"
            )


def checkpoints_of(run: Path) -> list[Path]:
    """The checkpoints that a run was asked for, by `--save-every` and at its end, the oldest first."""
    return [folder for folder in resumable_of(run) if folder.name.startswith("step-")]


def resumable_of(run: Path) -> list[Path]:
    """Every checkpoint of a run, the oldest first: those it was asked for (`step-N`), and the `latest-N` that a signal
    or a good validation left between them.
    """
    found = [path for path in (run / FOLDER_OF_RUN).glob("*-*") if re.fullmatch(_NAME_IN_RUN, path.name)]
    return sorted(
        (path for path in found if path.is_dir()), key=lambda path: (step_of(path), path.name.startswith("step-"))
    )


def step_of(folder: Path) -> int:
    """The step in the name of a run's checkpoint."""
    return int(folder.name.rpartition("-")[2])


def resolve(path: Path) -> Path:
    """`path` itself where it is a checkpoint; the newest checkpoint where it is a run's folder.

    Raises:
        CheckpointError: it is neither.
    """
    if (path / CONFIG).is_file() and (path / WEIGHTS).is_file():
        return path
    found = resumable_of(path)
    if found:
        return found[-1]
    if (path / FOLDER_OF_RUN).is_dir():
        raise CheckpointError(f"{path}: this run has no checkpoint yet")
    read_contents(path)
    raise CheckpointError(f"{path}: not a checkpoint: it has no {WEIGHTS}")


def average_weights(folders: Sequence[Path]) -> dict[str, Tensor]:
    """The mean of every weight over the checkpoints, summed in float64 (section 6.1); one is in memory at a time.

    Raises:
        CheckpointError: one is damaged, or holds other tensors than the first.
    """
    first = load_weights(folders[0])
    types = {name: tensor.dtype for name, tensor in first.items()}
    totals = {name: tensor.double() for name, tensor in first.items()}
    for folder in folders[1:]:
        weights = load_weights(folder)
        for name in sorted(totals.keys() | weights.keys()):
            if name not in totals or name not in weights or weights[name].shape != totals[name].shape:
                raise CheckpointError(
                    f"{folder}: {name} is not the same tensor as in {folders[0]}: these are different models"
                )
            totals[name] += weights[name]
    return {name: (total / len(folders)).to(types[name]) for name, total in totals.items()}


def _component(sections: Mapping[str, Any], kind: str, origin: str) -> Any:
    section = sections.get(kind)
    if not isinstance(section, Mapping) or "name" not in section:
        raise CheckpointError(f"{origin}: its configuration has no section {kind!r}")
    component = registry.find(kind, str(section["name"]))
    return restored(component.config, {name: value for name, value in section.items() if name != "name"}, origin)


def _link_or_copy(original: str, copy: str) -> None:
    try:
        os.link(original, copy)
    except OSError:
        shutil.copy2(original, copy)


def _check_room(folder: Path, needed: int) -> None:
    existing = next(parent for parent in folder.absolute().parents if parent.exists())
    free = shutil.disk_usage(existing).free
    if free < needed * 1.02 + (1 << 20):
        raise CheckpointError(
            f"{folder}: no room for this checkpoint: it needs {needed / 1e6:.0f} MB and the disk has "
            f"{free / 1e6:.0f} MB free. "
            "Make room and run the same command again; earlier checkpoints are untouched."
        )


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _sha256(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise CheckpointError(f"{path}: cannot read: {error.strerror}. Use another checkpoint.") from error


def _save_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    path.touch()
    mode = path.stat().st_mode  # the user's own umask; the library takes reading from everyone else
    try:
        save_file({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}, path)
    except SafetensorError as error:
        if os.strerror(errno.ENOSPC) in str(error):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path)) from error
        raise OSError(f"{path}: cannot write: {error}") from error
    path.chmod(mode)


def _load_tensors(path: Path) -> dict[str, Tensor]:
    try:
        tensors: dict[str, Tensor] = load_file(path)
    except (SafetensorError, OSError, ValueError) as error:
        raise CheckpointError(f"{path}: not a readable safetensors file: {error}") from error
    return tensors


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")


def _read_json(path: Path) -> dict[str, Any]:
    try:
        if not path.is_file():
            raise CheckpointError(f"{path}: missing, or no regular file. Use another checkpoint.")
        if path.stat().st_size > _LARGEST_JSON:
            raise CheckpointError(f"{path}: damaged: more than {_LARGEST_JSON >> 20} MiB. Use another checkpoint.")
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CheckpointError(f"{path}: cannot read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: not a JSON file: {error}") from error
    if not isinstance(content, dict):
        raise CheckpointError(f"{path}: expected a JSON object")
    return content
