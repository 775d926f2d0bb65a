"""`nmt average`: the mean of several checkpoints' weights (section 6.1)."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from nmt_cli import checkpoint, registry
from nmt_cli.errors import CheckpointError, UsageError
from nmt_cli.flags import IMPORTS_HELP, Command
from nmt_cli.registry import REQUIRED, argument, option


@dataclass(frozen=True, kw_only=True)
class AverageOptions:
    """Average checkpoints (section 6.1)."""

    paths: tuple[Path, ...] = argument("RUN|CHECKPOINT...", "A run, with --last, or checkpoints.")
    out: Path = option(REQUIRED, "The averaged checkpoint to write.", metavar="CHECKPOINT")
    last: int | None = option(None, "Average the run's last N checkpoints.", minimum=1)
    overwrite: bool = option(False, "Replace an averaged checkpoint that is there.")
    force: bool = option(False, "Also average checkpoints of different runs.")
    imports: tuple[str, ...] = option((), IMPORTS_HELP, metavar="MODULE", names=("--import",))


def average(options: AverageOptions) -> None:
    """Averages the last checkpoints of one run, or the named checkpoints, into the checkpoint `options.out`.

    Raises:
        UsageError: too few checkpoints, or `out` exists, or is no place for the result.
        CheckpointError: one is damaged, or they do not belong to one run.
    """
    registry.discover(options.imports)
    out = options.out
    place = Path(os.path.realpath(out))  # what a link leads to is replaced, not the link
    check_replaceable(out, place, options.overwrite)
    folders = chosen(options.paths, options.last)
    check_apart(out, place, [*options.paths, *folders])
    contents = [checkpoint.read_contents(folder) for folder in folders]
    for folder, content in zip(folders, contents, strict=True):
        if content.run != contents[0].run and not options.force:
            raise CheckpointError(
                f"{folder}: belongs to another run than {folders[0]}; average checkpoints of one run, or give --force"
            )
    weights = checkpoint.average_weights(folders)
    task = checkpoint.load_task(folders[-1] / checkpoint.TASK)
    checkpoint.save(place, contents[-1], weights, task)
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    console.print(
        f"averaged {len(folders)} checkpoints, steps {spacing([content.step for content in contents])}, into {out}",
        markup=False,
    )
    if len({content.step for content in contents}) < len(contents):
        console.print("warning: some of them are of the same step", markup=False)


def check_replaceable(out: Path, place: Path, overwrite: bool) -> None:
    """Raises UsageError unless `place`, which `out` leads to, is free, or certainly what an earlier average wrote."""
    if place.is_symlink():
        raise UsageError(f"{out}: is a link that leads in a circle; give another --out")
    if not place.exists():
        return
    if not overwrite:
        raise UsageError(f"{out}: exists already; give another --out, or --overwrite")
    reason = why_not_averaged(place)
    if reason:
        raise UsageError(f"{out}: {reason}, so --overwrite will not replace it; give another --out")


def why_not_averaged(folder: Path) -> str:
    """What tells `folder` from a checkpoint of weights alone, as `nmt average` writes them; nothing where it is one."""
    if not folder.is_dir():
        return "is no folder"
    found = {entry.name for entry in folder.iterdir()}
    if not {checkpoint.CONFIG, checkpoint.WEIGHTS} <= found:
        return "is no checkpoint"
    foreign = sorted(found - {checkpoint.CONFIG, checkpoint.WEIGHTS, checkpoint.TASK, checkpoint.CHECKSUMS})
    if foreign:
        return f"holds {', '.join(foreign[:3])} besides averaged weights"
    try:
        checkpoint.read_contents(folder)
    except CheckpointError as error:
        return f"is no checkpoint of this version ({error})"
    return ""


def check_apart(out: Path, place: Path, inputs: Sequence[Path]) -> None:
    """Raises UsageError where writing `place`, which `out` leads to, would touch one of the runs and checkpoints."""
    for path in inputs:
        real = Path(os.path.realpath(path))
        if real.is_relative_to(place):
            raise UsageError(f"{out}: is or holds {path}, which is to be averaged; give another --out")
        among = real.parent if real.parent.name == checkpoint.FOLDER_OF_RUN else real / checkpoint.FOLDER_OF_RUN
        if place.is_relative_to(among) or (place.is_relative_to(real) and (real / checkpoint.WEIGHTS).exists()):
            raise UsageError(f"{out}: lies among what training wrote; give another --out, such as RUN/averaged")


def chosen(paths: Sequence[Path], last: int | None) -> list[Path]:
    """The checkpoints to average: the last `last` of the one run in `paths`, or `paths` themselves, where a run's
    folder stands for its newest checkpoint.
    """
    if last is None:
        if len(paths) == 1:
            raise UsageError(f"give --last N with the run {paths[0]}, or name several checkpoints")
        return [checkpoint.resolve(path) for path in paths]
    if len(paths) != 1:
        raise UsageError("--last N takes exactly one RUN")
    found = checkpoint.checkpoints_of(paths[0])
    if not found:
        raise UsageError(
            f"{paths[0]}: not the folder of a run with checkpoints; --last N takes what --out of nmt train named"
        )
    if len(found) < last:
        raise UsageError(
            f"{paths[0]}: has {len(found)} checkpoints, not {last}; give --last {len(found)}, or train "
            f"with a smaller --save-every and a larger --keep-last"
        )
    return found[-last:]


def spacing(steps: Sequence[int]) -> str:
    """`1,000 to 5,000, 1,000 apart`: the user can see whether they are near-duplicates."""
    ordered = sorted(steps)
    gaps = sorted({later - earlier for earlier, later in itertools.pairwise(ordered)})
    apart = f", {' or '.join(f'{gap:,}' for gap in gaps[:3])} apart" if gaps else ""
    return f"{ordered[0]:,} to {ordered[-1]:,}{apart}"


command = Command(
    AverageOptions,
    average,
    examples=[
        "nmt average run --last 5 --out run/averaged",
        "nmt average run/checkpoints/step-00090000 run/checkpoints/step-00100000 --out averaged",
    ],
)
