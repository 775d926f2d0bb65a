"""The checkpoint whose weights a run starts from (`nmt train --init-from`).

Its path, run and step are recorded in the run and in each of its checkpoints. The weights are read
until the run has a checkpoint of its own; from then on the origin may be moved or deleted.
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

KINDS = ("model", "attention")  # the components that a run takes over from its origin


@dataclass(frozen=True)
class Origin:
    record: dict[str, Any]  # its path, its run's fingerprint, its step, and what preparations add
    weights: Mapping[str, Tensor] | None  # None if the run has a checkpoint of its own
    task: Task | None = None  # with vocabularies that are not those of the data


def model_settings(run: Path | None, init_from: Path) -> dict[str, Any]:
    """Return the settings of the model and its attention, from the run if there is one, else from
    its origin.
    """
    sections = (
        recorded_config(run) or checkpoint.read_contents(checkpoint.locate(init_from)).sections
    )
    return flatten({kind: sections[kind] for kind in KINDS if kind in sections}, str(init_from))


def origin_of(
    run: Path | None, init_from: Path | None, config: RunConfig, task: Task
) -> Origin | None:
    """Return the origin of a run, which a resumed one knows without `init_from`, or None; `run` is
    None if it is new.

    Raises:
        UsageError: the run was started from elsewhere.
        NmtError: as `read_origin`.
    """
    resumed = recorded_config(run)
    if run is None or resumed is None:
        return None if init_from is None else read_origin(init_from, config, task)
    recorded = resumed.get("origin")
    if init_from is not None and not (
        recorded and Path(recorded["path"]).is_relative_to(init_from.resolve())
    ):
        began = f"from {recorded['path']}" if recorded else "without --init-from"
        raise UsageError(
            f"{run}: this run was started {began}, not from {init_from}. Resume it with "
            f"`{command_line('train', '--resume', run)}`, or give another --out"
        )
    if not recorded:
        return None
    if checkpoint.resumable_of(run):
        return Origin(recorded, None)
    origin = read_origin(Path(recorded["path"]), config, task)
    if not origin.record.items() <= recorded.items():
        raise CheckpointError(
            f"{recorded['path']}: not the checkpoint that {run} was started from; give another "
            "--out"
        )
    return replace(origin, record=recorded)


def read_origin(path: Path, config: RunConfig, task: Task) -> Origin:
    """Return a checkpoint, or the newest of a run, as the origin of a model like `config` for the
    data of `task`.

    Raises:
        UsageError: the settings of the model are not those of the checkpoint.
        CheckpointError: the checkpoint is missing or damaged.
    """
    folder = checkpoint.locate(path)
    contents = checkpoint.read_contents(folder)
    former = checkpoint.load_task(folder / checkpoint.TASK, contents.modules.get("task", ""))
    for kind in KINDS:
        check_settings(
            config[kind], checkpoint.component_config(contents, kind, str(folder)), kind, folder
        )
    record = {"path": str(folder.resolve()), "run": contents.run, "step": contents.step}
    return Origin(
        record, checkpoint.load_weights(folder), former if task.difference(former) else None
    )


def assign(origin: Origin, model: Any, task: Task) -> None:
    """Give the weights of its origin to a model; raise a CheckpointError if they are for other
    vocabularies.
    """
    if origin.weights is None:
        return
    if origin.task is not None:
        folder = Path(origin.record["path"])
        raise CheckpointError(
            f"--init-from {folder}: the data have another {task.difference(origin.task)}. Prepare "
            "them with its "
            f"vocabularies: {command_line('prepare', '--subwords-from', folder)}. Or give "
            "--new-vocabulary: pieces "
            "that both have keep their weights"
        )
    checkpoint.assign_weights(model, origin.weights, origin.record["path"])


def check_settings(ours: Any, theirs: Any, kind: str, folder: Path) -> None:
    """Raise UsageError unless both configure the same component, with the same settings except for
    dropout.
    """
    found, wanted = (
        {kind: component_of(config).name, **asdict(config)} for config in (ours, theirs)
    )
    for name, value in wanted.items():
        if "dropout" not in name and found.get(name) != value:
            raise UsageError(
                f"--init-from {folder}: {flag(name)} is {value} there, and {found.get(name)} here. "
                "Only dropout may differ from the checkpoint"
            )
