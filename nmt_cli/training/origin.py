"""The checkpoint whose weights a run starts from (`nmt train --init-from`).

Its path, run and step are recorded in the run and in each of its checkpoints. The weights are read
until the run has a checkpoint of its own. From then on, the origin may be moved or deleted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from nmt_cli import checkpoint
from nmt_cli.config import RunConfig, flag, flatten
from nmt_cli.errors import CheckpointError, UsageError, command_line
from nmt_cli.registry import component_of
from nmt_cli.task import Task
from nmt_cli.training.run_directory import recorded_config
from nmt_cli.weights import assign_weights, load_weights

KINDS = ("model", "attention")  # the components that a run takes over from its origin


@dataclass(frozen=True)
class Origin:
    record: dict[str, Any]  # its path, its run's fingerprint, its step, and what preparations add
    weights: Mapping[str, Tensor] | None  # None if the run has a checkpoint of its own
    task: Task | None = None  # if the data have other vocabularies


def model_settings(run: Path | None, init_from: Path) -> dict[str, Any]:
    """Return the settings of the model and its attention, of an earlier run or else its origin."""
    sections: Mapping[str, Any] | None = recorded_config(run)
    if sections is None:
        sections = checkpoint.read_contents(checkpoint.locate(init_from)).sections
    taken = {kind: sections[kind] for kind in KINDS if kind in sections}
    return flatten(taken, str(init_from))


def origin_of(
    run: Path | None, init_from: Path | None, config: RunConfig, task: Task
) -> Origin | None:
    """Return the origin of a run, if it has one. An earlier run knows it without `init_from`.

    Args:
        run: the run's directory, or None.

    Raises:
        UsageError: the run was started from elsewhere.
        NmtError: as `read_origin`.
    """
    earlier_run = recorded_config(run)
    if run is None or earlier_run is None:
        if init_from is None:
            return None
        return read_origin(init_from, config, task)
    record = earlier_run.get("origin")
    if init_from is not None:
        check_same_origin(run, record, init_from)
    if not record:
        return None
    if checkpoint.resumable_of(run):
        return Origin(record, None)
    path = Path(record["path"])
    origin = read_origin(path, config, task)
    if not origin.record.items() <= record.items():
        raise CheckpointError(
            f"{path}: not the checkpoint that {run} was started from; give another --out"
        )
    return replace(origin, record=record)


def check_same_origin(run: Path, record: Mapping[str, Any] | None, init_from: Path) -> None:
    """Raise a UsageError unless the run was started from `init_from`, a checkpoint or a run."""
    started = "without --init-from"
    if record:
        started = f"from {record['path']}"
        if Path(record["path"]).is_relative_to(init_from.resolve()):
            return
    raise UsageError(
        f"{run}: this run was started {started}, not from {init_from}. Resume it with "
        f"`{command_line('train', '--resume', run)}`, or give another --out"
    )


def read_origin(path: Path, config: RunConfig, task: Task) -> Origin:
    """Return a checkpoint, or the newest one of a run, as an origin.

    Raises:
        UsageError: the checkpoint has other settings of the model.
        CheckpointError: the checkpoint is missing or damaged.
    """
    folder = checkpoint.locate(path)
    contents = checkpoint.read_contents(folder)
    for kind in KINDS:
        former_config = checkpoint.component_config(contents, kind, str(folder))
        check_settings(config[kind], former_config, kind, folder)
    record = {"path": str(folder.resolve()), "run": contents.run, "step": contents.step}
    weights = load_weights(folder)
    former_task = checkpoint.load_task(folder / checkpoint.TASK, contents.modules.get("task", ""))
    if task.difference(former_task):
        return Origin(record, weights, former_task)
    return Origin(record, weights)


def assign(origin: Origin, model: Any, task: Task) -> None:
    """Give the weights of its origin to a model.

    Raises:
        CheckpointError: they do not fit the model, or are for other vocabularies.
    """
    if origin.weights is None:
        return
    if origin.task is not None:
        folder = Path(origin.record["path"])
        command = command_line("prepare", "--subwords-from", folder)
        raise CheckpointError(
            f"--init-from {folder}: the data have another {task.difference(origin.task)}. Prepare "
            f"them with its vocabularies: {command}. Or give --new-vocabulary: pieces that both "
            "have keep their weights"
        )
    assign_weights(model, origin.weights, origin.record["path"])


def check_settings(config: Any, former_config: Any, kind: str, folder: Path) -> None:
    """Raise a UsageError if settings of a component, except dropout, differ from the origin's."""
    settings = {kind: component_of(config).name, **asdict(config)}
    former_settings = {kind: component_of(former_config).name, **asdict(former_config)}
    for name, former_value in former_settings.items():
        value = settings.get(name)
        if "dropout" not in name and value != former_value:
            raise UsageError(
                f"--init-from {folder}: {flag(name)} is {former_value} there, and {value} here. "
                "Only dropout may differ from the checkpoint"
            )
