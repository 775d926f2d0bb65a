"""`nmt average`: the mean of several checkpoints (section 6.1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nmt_cli import checkpoint, registry
from nmt_cli.errors import CheckpointError, UsageError, counted
from nmt_cli.files.text import fingerprint
from nmt_cli.flags import Command, import_option
from nmt_cli.registry import REQUIRED, argument, option
from nmt_cli.streams import say
from nmt_cli.weights import average_weights, write_checkpoint


@dataclass(frozen=True, kw_only=True)
class AverageOptions:
    """Average checkpoints (section 6.1)."""

    paths: tuple[Path, ...] = argument("RUN|CHECKPOINT...", "A run, with --last, or checkpoints.")
    out: Path = option(REQUIRED, "The averaged checkpoint to write.", metavar="CHECKPOINT")
    last: int | None = option(None, "Average the run's last N checkpoints.", minimum=1)
    overwrite: bool = option(False, "Replace an existing averaged or imported checkpoint.")
    force: bool = option(False, "Also average checkpoints of different runs.")
    imports: tuple[str, ...] = import_option()


def average(options: AverageOptions) -> None:
    registry.discover(options.imports)
    # First, because a name that cannot be used should be refused before the work.
    with checkpoint.new(options.out, options.overwrite) as aside:
        if options.last is None:
            folders = given_checkpoints(options.paths)
        elif len(options.paths) == 1:
            folders = last_checkpoints(options.paths[0], options.last)
        else:
            raise UsageError("--last N takes exactly one RUN")
        folders = without_copies(folders)
        contents = list(map(checkpoint.read_contents, folders))
        for folder, content in zip(folders, contents, strict=True):
            if content.run != contents[0].run and not options.force:
                raise CheckpointError(
                    f"{folder}: is of another run than {folders[0]}; average checkpoints of one "
                    "run, or give --force"
                )
        weights = average_weights(folders)
        module = contents[-1].modules.get("task", "")
        task = checkpoint.load_task(folders[-1] / checkpoint.TASK, module)
        write_checkpoint(aside, contents[-1], weights, task)
    steps = ", ".join(f"{content.step:,}" for content in contents)
    if len(folders) > 1:
        say(f"averaged {len(folders)} checkpoints (steps {steps}) into {options.out}")
    else:
        say(
            f"wrote the checkpoint of step {steps} without the state of its training to "
            f"{options.out}"
        )


def given_checkpoints(paths: Sequence[Path]) -> list[Path]:
    """Return the checkpoints that are given. A run stands for its newest one."""
    if len(paths) == 1 and checkpoint.resumable_of(paths[0]):
        raise UsageError(f"{paths[0]}: give --last N with a run")
    folders = [checkpoint.locate(path) for path in paths]
    if len({folder.resolve() for folder in folders}) < len(folders):
        raise UsageError("a checkpoint is given twice; a run stands for its newest checkpoint")
    return folders


def last_checkpoints(run: Path, number: int) -> list[Path]:
    """Return the last checkpoints of a run."""
    folders = checkpoint.checkpoints_of(run)
    if not folders:
        raise UsageError(
            f"{run}: not a run with checkpoints; --last N takes the --out of nmt train"
        )
    if len(folders) < number:
        raise UsageError(
            f"{run}: has only {counted(len(folders), 'checkpoint')}; give --last {len(folders)}"
        )
    newest = checkpoint.resumable_of(run)[-1]
    if newest.name.startswith("latest-"):
        say(
            f"note: {newest} is newer, and not in the mean: --last takes the checkpoints of "
            "--save-every"
        )
    return folders[-number:]


def without_copies(folders: Sequence[Path]) -> list[Path]:
    """Return the checkpoints without copies of later ones, as the best one is a copy of a step."""
    originals: dict[tuple[str, int, str], Path] = {}
    for folder in reversed(folders):
        contents = checkpoint.read_contents(folder)
        identity = contents.run, contents.step, fingerprint(folder / checkpoint.WEIGHTS)
        original = originals.setdefault(identity, folder)
        if original != folder:
            say(f"note: {folder} is a copy of {original}, which counts once")
    return list(originals.values())[::-1]


command = Command(
    AverageOptions,
    average,
    examples=[
        "nmt average run --last 5 --out run/averaged",
        "nmt average run/checkpoints/step-000{90,99}000 --out averaged",
    ],
)
