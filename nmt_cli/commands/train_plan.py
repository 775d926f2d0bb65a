"""The plan of a training, which `nmt train` shows before the first step."""

from __future__ import annotations

from collections.abc import Iterator

from nmt_cli.commands.train_parts import model_without_weights, vocabulary_of
from nmt_cli.config import resolve
from nmt_cli.device import World
from nmt_cli.errors import counted
from nmt_cli.interfaces import Task
from nmt_cli.presets import BY_SIZE
from nmt_cli.training.freezing import trained
from nmt_cli.training.length import Length
from nmt_cli.training.parts import Parts
from nmt_cli.training.reporter import readable
from nmt_cli.training.settings import TrainingConfig


def plan_lines(parts: Parts, world: World, adapts: bool) -> str:
    """Return lines about the training to come.

    Args:
        adapts: the run starts from a trained model, which may be larger than one that learns from this corpus alone.
    """
    plan, length = parts.plan, parts.length
    count, learning = (sum(p.numel() for p in some) for some in (parts.model.parameters(), trained(parts.model)))
    frozen = f", {learning:,} of them trained" if learning < count else ""
    packed = ", packed" if plan.packed else ""
    lines = [
        f"{count:,} parameters{frozen}; {len(parts.corpus):,} sentence pairs; "
        f"{counted(length.steps, 'step')}, {readable(length.epochs)} epoch{'' if length.epochs == 1 else 's'}",
        f"{plan.batch_tokens:,} tokens an update; micro-batches: {parts.micro_batches}{packed}; "
        f"processes: {world.size} ({world.device.type}); precision: {parts.precision}",
        "" if adapts else warning(parts.task, count, length),
    ]
    return "\n".join(filter(None, lines))


def warning(task: Task, count: int, length: Length) -> str:
    """Return a line if a model of `count` parameters is far too large for the data of the task, else nothing.

    It names the largest preset that suits the data, or else the smallest one, if there is a smaller one.
    """
    if not length.is_too_long_for(count):
        return ""
    smaller = [(name, size) for name, size in sizes_of_presets(task) if size < count]
    suiting = [(name, size) for name, size in smaller if size <= length.largest_model] or smaller[-1:]
    advice = "; --preset {} has {:,}".format(*suiting[0]) if suiting else ""
    data = f"{length.target_tokens:,.0f} target tokens, and {length.epochs:,.0f} epochs"
    return f"warning: {count:,} parameters for {data}: the model will overfit{advice}"


def sizes_of_presets(task: Task) -> Iterator[tuple[str, int]]:
    """Yield the presets for this task by name, the largest first, and the parameters that each has with its data."""
    for name in BY_SIZE.get(task.name, ()):
        config = resolve(TrainingConfig, {}, preset=name)
        yield name, sum(p.numel() for p in model_without_weights(config, vocabulary_of(task)).parameters())
