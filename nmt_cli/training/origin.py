"""The checkpoint whose weights a run starts from (`nmt train --init-from`).

Its path, run and step are recorded in the run and in each of its checkpoints. The weights are read until the run has a
checkpoint of its own; from then on the origin may be moved or deleted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
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
NEW_VOCABULARY = "new_vocabulary"  # in the record of an origin with other vocabularies


@dataclass(frozen=True)
class Origin:
    record: dict[str, Any]  # its path, its run's fingerprint, its step, and whether it has other vocabularies
    weights: Mapping[str, Tensor] | None  # None if the run has a checkpoint of its own
    task: Task | None = None  # if its vocabularies are others


def model_settings(run: Path | None, init_from: Path) -> dict[str, Any]:
    """Return the settings of the model and its attention, from the run if there is one, else from its origin."""
    sections = recorded_config(run) or checkpoint.read_contents(checkpoint.locate(init_from)).sections
    return flatten({kind: sections[kind] for kind in KINDS if kind in sections}, str(init_from))


def origin_of(
    run: Path | None, init_from: Path | None, config: RunConfig, task: Task, new_vocabulary: bool = False
) -> Origin | None:
    """Return the origin of a run, which a resumed one knows without `init_from`, or None; `run` is None if it is new.

    Raises:
        UsageError: the run was started from elsewhere.
        NmtError: as `read_origin`.
    """
    resumed = recorded_config(run)
    if run is None or resumed is None:
        return None if init_from is None else read_origin(init_from, config, task, new_vocabulary)
    recorded = resumed.get("origin")
    if init_from is not None and not (recorded and Path(recorded["path"]).is_relative_to(init_from.resolve())):
        began = f"from {recorded['path']}" if recorded else "without --init-from"
        raise UsageError(
            f"{run}: this run was started {began}, not from {init_from}. Resume it with "
            f"`{command_line('train', '--resume', run)}`, or give another --out"
        )
    if not recorded:
        return None
    if checkpoint.resumable_of(run):
        return Origin(recorded, None)
    found = read_origin(Path(recorded["path"]), config, task, NEW_VOCABULARY in recorded)
    if found.record != recorded:
        raise CheckpointError(f"{recorded['path']}: not the checkpoint that {run} was started from; give another --out")
    return found


def read_origin(path: Path, config: RunConfig, task: Task, new_vocabulary: bool = False) -> Origin:
    """Return a checkpoint, or the newest of a run, as the origin of a model like `config` for the data of `task`.

    Raises:
        UsageError: the settings of the model are not those of the checkpoint.
        CheckpointError: the checkpoint is missing or damaged, or has other vocabularies, without `new_vocabulary`.
    """
    folder = checkpoint.locate(path)
    contents = checkpoint.read_contents(folder)
    former = checkpoint.load_task(folder / checkpoint.TASK, contents.modules.get("task", ""))
    difference = task.difference(former)
    if difference is not None and not new_vocabulary:
        raise CheckpointError(
            f"--init-from {folder}: the data have another {difference}. Prepare them with its vocabularies: "
            f"{command_line('prepare', '--subwords-from', folder)}. Or give --new-vocabulary: pieces that both have "
            "keep their weights"
        )
    for kind in KINDS:
        check_settings(config[kind], checkpoint.component_config(contents, kind, str(folder)), kind, folder)
    record = {"path": str(folder.resolve()), "run": contents.run, "step": contents.step}
    if difference is None:
        return Origin(record, checkpoint.load_weights(folder))
    return Origin({**record, NEW_VOCABULARY: True}, checkpoint.load_weights(folder), former)


def check_settings(ours: Any, theirs: Any, kind: str, folder: Path) -> None:
    """Raise UsageError unless both configure the same component, with the same settings except for dropout."""
    found, wanted = ({kind: component_of(config).name, **asdict(config)} for config in (ours, theirs))
    for name, value in wanted.items():
        if "dropout" not in name and found.get(name) != value:
            raise UsageError(
                f"--init-from {folder}: {flag(name)} is {value} there, and {found.get(name)} here. "
                "Only dropout may differ from the checkpoint"
            )
