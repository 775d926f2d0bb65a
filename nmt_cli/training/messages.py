"""The lines before the first step of a training and after its last one, and the figures of its
summary.
"""

from __future__ import annotations

from typing import Any

from nmt_cli import checkpoint, registry
from nmt_cli.config import RunConfig
from nmt_cli.distributed import ranks_of
from nmt_cli.errors import command_line, counted, import_flags
from nmt_cli.interfaces import Schedule
from nmt_cli.training.costs import utilisation
from nmt_cli.training.gradients import trained
from nmt_cli.training.length import highest_rate
from nmt_cli.training.reporter import duration, readable
from nmt_cli.training.run import Run
from nmt_cli.training.run_directory import read_config
from nmt_cli.training.state import LOSS


def summary(run: Run) -> dict[str, Any]:
    state, total = run.state, run.state.total
    return {
        "steps": state.step,
        "parameters": parameters_of(run.model)[0],
        "target_tokens": total.target_tokens,
        "training_hours": total.seconds / 3600,
        "target_tokens_per_second": total.target_tokens / max(total.seconds, 1e-9),
        "peak_learning_rate": highest_rate(run.trainer.schedule, state.step),
        f"best_validation_{run.config.best_by}": state.best,
        **{f"best_validation_{name}": value for name, value in state.best_figures.items()},
        "best_step": state.best_step,
        "skipped_updates": state.skipped,
        "flops": total.flops or None,
        "flops_as_table2": total.flops_as_table2,
        "model_flop_utilisation": utilisation(total),
        **run.costs.describe(total),
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
        others = [
            name for name in (LOSS, *run.task.measures) if name != by and name in state.best_figures
        ]
        also = "".join(f", {name} {state.best_figures[name]:.3f}" for name in others)
        lines.append(
            f"best validation {by} {state.best:.3f}{also} at step {state.best_step:,} "
            f"({path / 'best'})"
        )
        if is_far_worse(state.last, state.best):
            lines.append(
                f"validation {by} has been worse since step {state.best_step:,}: {state.last:.3f} "
                "at the end"
            )
    imports = import_flags(read_config(path)["imports"])
    lines.append(f"report: {command_line('report', path, '--out', path / 'report.html', *imports)}")
    return "\n".join([*lines, f"next: {command_line(*next_command(run), *imports)}"])


def is_far_worse(last: float | None, best: float) -> bool:
    """Return whether the last validation is worse than the best one by more than a tenth, in either
    direction.
    """
    return last is not None and abs(last - best) > 0.1 * abs(best)


def next_command(run: Run) -> list[object]:
    """Return the command that averages the checkpoints of the last tenth of the run, or translates
    with the best one.

    The mean with earlier ones is worse than the last; after --patience, the last ones are past the
    best.
    """
    state, path = run.state, run.directory.path
    last = checkpoint.checkpoints_of(path)[-5:]
    settled = [
        folder for folder in last if 10 * checkpoint.read_contents(folder).step >= 9 * state.step
    ]
    if len(settled) > 1 and not run.out_of_patience:
        return ["average", path, "--last", len(settled), "--out", path / "averaged"]
    return ["translate", path if state.best is None else path / "best"]


def opening_lines(run: Run) -> str:
    """Return lines about the training to come."""
    plan, length, updates = run.plan, run.length, run.trainer.updates
    count, learning = parameters_of(run.model)
    frozen = f", {learning:,} of them trained" if learning < count else ""
    packed = ", packed" if updates.packed else ""
    sentences = f" and {plan.batch_sentences:,} sentences" if plan.batch_sentences else ""
    rate = highest_rate(run.trainer.schedule, length.steps)
    peak = "" if rate is None else f"; highest learning rate: {rate:.2g}"
    lines = [
        f"{count:,} parameters{frozen}; {len(run.corpus):,} sentence pairs; "
        f"{counted(length.steps, 'step')}, {readable(length.epochs)} "
        f"epoch{'' if length.epochs == 1 else 's'}",
        f"{plan.batch_tokens:,} tokens{sentences} an update; micro-batches: "
        f"{updates.micro_batches}{packed}; "
        f"processes: {run.world.size} ({run.world.device.type}); precision: "
        f"{run.trainer.objective.precision}{peak}",
    ]
    scored = run.config.validation_bleu or run.config.best_by != LOSS
    if scored and "bleu" in run.task.measures:
        lines.append(
            f"validation BLEU: sacreBLEU's of greedy outputs, tokenization {run.task.tokenization}"
        )
    return "\n".join(lines)


def advice(
    config: RunConfig,
    preset: str | None,
    schedule: Schedule,
    steps: int,
    run: Run | None = None,
    resumed: bool = False,
) -> list[str]:
    """Return lines about the order of the sentences, and about settings that do not suit a training
    of so many steps.

    Entry points of `nmt.advice` give the latter. Without data, where a training is only sized,
    there is no `run`.
    """
    lines = []
    if run is not None:
        lines += [line for change in run.plan.changes for line in change.lines(run.length.epochs)]
    for function in registry.entries("nmt.advice"):
        lines += function(config, preset, schedule, steps, run, resumed)
    return lines


def parameters_of(model: Any) -> tuple[int, int]:
    """Return the number of parameters, and of those that are trained, in all processes."""
    every, learning = (
        [p.numel() * ranks_of(p) for p in each] for each in (model.parameters(), trained(model))
    )
    return sum(every), sum(learning)
