"""The plan of a training, which `nmt train` shows before the first step."""

from __future__ import annotations

from collections.abc import Iterator

from nmt_cli.commands.train_parts import model_without_weights, vocabulary_of
from nmt_cli.config import resolve
from nmt_cli.device import World
from nmt_cli.errors import counted
from nmt_cli.interfaces import Schedule, Task
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
        *warnings(parts, adapts),
    ]
    return "\n".join(lines)


def warnings(parts: Parts, adapts: bool) -> list[str]:
    """Return lines about settings that do not suit this training; see `plan_lines`."""
    lines = schedule_warnings(parts.schedule, parts.length.steps)
    if adapts:
        return lines
    if getattr(parts.criterion, "refines", False):
        lines.append("warning: this criterion refines a trained model, and this one is untrained; give --init-from")
    count = sum(parameter.numel() for parameter in parts.model.parameters())
    return [*lines, *filter(None, [size_warning(parts.task, count, parts.length)])]


def schedule_warnings(schedule: Schedule, steps: int) -> list[str]:
    """Return lines about a warm-up or a decay that is not that of a training of so many steps."""
    lines = []
    warmup, decay = (getattr(schedule, name, 0) for name in ("warmup_steps", "decay_steps"))
    if warmup > steps:
        lines.append(
            f"warning: the run has {counted(steps, 'step')}, and the learning rate rises for --warmup-steps {warmup:,}"
        )
    if decay and not 0.9 <= steps / decay <= 1.1:
        lines.append(
            f"warning: the run has {counted(steps, 'step')}, and the learning rate falls to zero at --decay-steps "
            f"{decay:,}; give --decay-steps {steps}"
        )
    return lines


def size_warning(task: Task, count: int, length: Length) -> str:
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
