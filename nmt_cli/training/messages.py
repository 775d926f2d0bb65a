"""The lines before the first step of a training and after its last one, and the figures of its summary."""

from __future__ import annotations

from typing import Any

import numpy as np

from nmt_cli import checkpoint
from nmt_cli.config import RunConfig, resolve
from nmt_cli.distributed import sharers_of
from nmt_cli.errors import command_line, counted, import_flags
from nmt_cli.interfaces import Schedule
from nmt_cli.layers.embedding import learned_positions
from nmt_cli.optim.inverse_sqrt import InverseSqrtConfig
from nmt_cli.training.costs import utilisation
from nmt_cli.training.gradients import trained
from nmt_cli.training.length import highest_rate
from nmt_cli.training.reporter import duration, readable
from nmt_cli.training.run import Run
from nmt_cli.training.run_directory import read_config
from nmt_cli.training.settings import TrainingConfig
from nmt_cli.training.setup import Setup
from nmt_cli.training.state import LOSS

FAR_ABOVE = 2.25  # highest learning rates, as multiples of the preset's, from which a warning is given


def summary(run: Run) -> dict[str, Any]:
    state, total = run.state, run.state.total
    return {
        "steps": state.step,
        "parameters": parameters_of(run.setup.model)[0],
        "target_tokens": total.target_tokens,
        "training_hours": total.seconds / 3600,
        "target_tokens_per_second": total.target_tokens / max(total.seconds, 1e-9),
        "peak_learning_rate": highest_rate(run.setup.schedule, state.step),
        f"best_validation_{run.config.best_by}": state.best,
        **{f"best_validation_{name}": value for name, value in state.best_figures.items()},
        "best_step": state.best_step,
        "skipped_updates": state.skipped,
        "flops": total.flops or None,
        "flops_as_table2": total.flops_as_table2,
        "model_flop_utilisation": utilisation(total),
        **run.setup.costs.describe(total),
    }


def ending(run: Run) -> str:
    state = run.state
    if run.out_of_patience:
        return f"stopped at step {state.step:,}: no improvement in {counted(state.stale_validations, 'validation')}"
    epochs = f" after {counted(state.epochs, 'epoch')}" if run.has_all_epochs else ""
    return f"finished at step {state.step:,}{epochs}"


def closing_lines(run: Run) -> str:
    state, path = run.state, run.directory.path
    lines = [f"{ending(run)}, after {duration(state.total.seconds)} of training"]
    if state.best is not None:
        by = run.config.best_by
        others = [name for name in (LOSS, *run.setup.task.measures) if name != by and name in state.best_figures]
        also = "".join(f", {name} {state.best_figures[name]:.3f}" for name in others)
        lines.append(f"best validation {by} {state.best:.3f}{also} at step {state.best_step:,} ({path / 'best'})")
        if is_far_worse(state.last, state.best):
            lines.append(f"validation {by} has been worse since step {state.best_step:,}: {state.last:.3f} at the end")
    imports = import_flags(read_config(path)["imports"])
    lines.append(f"report: {command_line('report', path, '--out', path / 'report.html', *imports)}")
    return "\n".join([*lines, f"next: {command_line(*next_command(run), *imports)}"])


def is_far_worse(last: float | None, best: float) -> bool:
    """Return whether the last validation is worse than the best one by more than a tenth, in either direction."""
    return last is not None and abs(last - best) > 0.1 * abs(best)


def next_command(run: Run) -> list[object]:
    """Return the command that averages the checkpoints of the last tenth of the run, or translates with the best one.

    The mean with earlier ones is worse than the last; after --patience, the last ones are past the best.
    """
    state, path = run.state, run.directory.path
    last = checkpoint.checkpoints_of(path)[-5:]
    settled = [folder for folder in last if 10 * checkpoint.read_contents(folder).step >= 9 * state.step]
    if len(settled) > 1 and not run.out_of_patience:
        return ["average", path, "--last", len(settled), "--out", path / "averaged"]
    return ["translate", path if state.best is None else path / "best"]


def opening_lines(setup: Setup) -> str:
    """Return lines about the training to come."""
    plan, length = setup.plan, setup.length
    count, learning = parameters_of(setup.model)
    frozen = f", {learning:,} of them trained" if learning < count else ""
    packed = ", packed" if plan.packed else ""
    sentences = f" and {plan.batch_sentences:,} sentences" if plan.batch_sentences else ""
    rate = highest_rate(setup.schedule, length.steps)
    peak = "" if rate is None else f"; highest learning rate: {rate:.2g}"
    lines = [
        f"{count:,} parameters{frozen}; {len(setup.corpus):,} sentence pairs; "
        f"{counted(length.steps, 'step')}, {readable(length.epochs)} epoch{'' if length.epochs == 1 else 's'}",
        f"{plan.batch_tokens:,} tokens{sentences} an update; micro-batches: {setup.micro_batches}{packed}; "
        f"processes: {setup.world.size} ({setup.world.device.type}); precision: {setup.precision}{peak}",
        *validation_lines(setup),
        *warnings(setup),
    ]
    return "\n".join(lines)


def validation_lines(setup: Setup) -> list[str]:
    scored = setup.settings.validation_bleu or setup.settings.best_by != LOSS
    if not scored or "bleu" not in setup.task.measures:
        return []
    return [f"validation BLEU: sacreBLEU's of greedy outputs, tokenization {setup.task.tokenization}"]


def warnings(setup: Setup, resumed: bool = False) -> list[str]:
    """Return lines about settings that do not suit this training. A trained model may be larger for its corpus."""
    lines = schedule_warnings(setup.schedule, setup.length.steps, resumed)
    adapts = resumed or setup.origin is not None
    if (positions := learned_positions(setup.model)) is not None:
        lengths = np.maximum(setup.corpus.source_lengths[:], setup.corpus.target_lengths[:])
        if longer := int((lengths > positions).sum()):
            pairs = f"{longer:,} of {len(lengths):,} sentence pairs"
            lines.append(f"warning: {pairs} are longer than --max-positions {positions}: further tokens share the last")
    if not adapts and getattr(setup.criterion, "refines", False):
        lines.append("warning: this criterion refines a trained model, and this one is untrained; give --init-from")
    count, length = parameters_of(setup.model)[0], setup.length
    lines += [line for change in setup.plan.changes for line in change.lines(length.epochs)]
    if not adapts and length.is_too_long_for(count):
        data = f"{length.target_tokens:,.0f} target tokens, and {length.epochs:,.0f} epochs"
        presets = ", ".join(setup.task.presets)
        lines.append(f"warning: {count:,} parameters for {data}: the model will overfit; presets by size: {presets}")
    return lines


def peak_warnings(config: RunConfig, preset: str | None) -> list[str]:
    """Return a line if the highest learning rate is far above the preset's because the warm-up is shorter."""
    ours, theirs = config["schedule"], resolve(TrainingConfig, {}, preset=preset)["schedule"]
    if not isinstance(ours, InverseSqrtConfig) or not isinstance(theirs, InverseSqrtConfig):
        return []
    peak, usual = (schedule.peak(config["model"].d_model) for schedule in (ours, theirs))
    peak *= min(1.0, config.training.max_steps / ours.warmup_steps)  # which the run may not reach
    shorter = theirs.warmup_steps / ours.warmup_steps
    if ours.peak_learning_rate is not None or min(peak / usual, shorter**0.5) <= FAR_ABOVE:
        return []
    return [
        f"warning: with --warmup-steps {ours.warmup_steps:,}, the highest learning rate is {peak / usual:.1f} times "
        f"that of {preset or 'the paper'}, and training may diverge; --peak-learning-rate {usual:.2g} keeps it"
    ]


def schedule_warnings(schedule: Schedule, steps: int, resumed: bool = False) -> list[str]:
    lines, has = [], f"warning: the run has {counted(steps, 'step')}, and the learning rate"
    warmup, decay = (getattr(schedule, name, 0) for name in ("warmup_steps", "decay_steps"))
    if warmup > steps:
        lines.append(f"{has} rises for --warmup-steps {warmup:,}")
    if decay and not 0.9 <= steps / decay <= 1.1:
        stays = f" and stays at {schedule(decay):.2g}" if steps > decay else ""
        advice = "a new run with --init-from may have another" if resumed else f"give --decay-steps {steps}"
        lines.append(f"{has} falls until --decay-steps {decay:,}{stays}; {advice}")
    return lines


def parameters_of(model: Any) -> tuple[int, int]:
    """Return the number of parameters, and of those that are trained, in all processes."""
    every, learning = ([p.numel() * sharers_of(p).size for p in each] for each in (model.parameters(), trained(model)))
    return sum(every), sum(learning)
