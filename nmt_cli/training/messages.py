"""The lines before the first step of a training and after its last one, and its summary."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor

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
    """Return the figures of a run that has ended, for its summary.json."""
    state = run.state
    total = state.total
    best = {f"best_validation_{run.config.measures[0]}": state.best}
    for name, value in state.best_figures.items():
        best[f"best_validation_{name}"] = value
    return {
        "steps": state.step,
        "parameters": parameters_of(run.model)[0],
        "target_tokens": total.target_tokens,
        "training_hours": total.seconds / 3600,
        "target_tokens_per_second": total.target_tokens / max(total.seconds, 1e-9),
        "peak_learning_rate": highest_rate(run.trainer.schedule, state.step),
        **best,
        "best_step": state.best_step,
        "skipped_updates": state.skipped,
        "flops": total.flops or None,
        "flops_as_table2": total.flops_as_table2,
        "model_flop_utilisation": utilisation(total),
        **run.costs.describe(total),
    }


def ending(run: Run) -> str:
    """Return where and why the run ended."""
    state = run.state
    if run.out_of_patience:
        validations = counted(state.stale_validations, "validation")
        return f"stopped at step {state.step:,}: no improvement in {validations}"
    text = f"finished at step {state.step:,}"
    if run.has_all_epochs:
        text += f" after {counted(state.epochs, 'epoch')}"
    return text


def about_kernels(kernels: Mapping[str, str]) -> str:
    """Return a line about `Plain.kernels`."""
    used = [part for part, trouble in kernels.items() if not trouble]
    line = f"for {', '.join(used) or 'nothing'}"
    for part, trouble in kernels.items():
        if trouble:
            line += f"; not for {part}: {trouble}"
    return line


def closing_lines(run: Run) -> str:
    """Return the result of a run, and the commands that come next."""
    path = run.directory.path
    imports = import_flags(read_config(path)["imports"])
    report = command_line("report", path, "--out", path / "report.html", *imports)
    lines = [f"{ending(run)}, after {duration(run.state.total.seconds)} of training"]
    lines += lines_about_best(run)
    lines.append(f"report: {report}")
    lines.append(f"next: {command_line(*next_command(run), *imports)}")
    return "\n".join(lines)


def lines_about_best(run: Run) -> list[str]:
    """Return the best validation, if there is one, and whether the last one is much worse."""
    state = run.state
    if state.best is None:
        return []
    best_by, *others = run.config.measures
    figures = f"{best_by} {state.best:.3f}"
    for name in dict.fromkeys((LOSS, *run.task.measures, *others)):
        if name != best_by and name in state.best_figures:
            figures += f", {name} {state.best_figures[name]:.3f}"
    best = run.directory.path / "best"
    lines = [f"best validation {figures} at step {state.best_step:,} ({best})"]
    if is_far_worse(state.last, state.best):
        lines.append(
            f"validation {best_by} has been worse since step {state.best_step:,}: "
            f"{state.last:.3f} at the end"
        )
    return lines


def is_far_worse(last: float | None, best: float) -> bool:
    """Return whether the last validation differs from the best one by more than a tenth."""
    return last is not None and abs(last - best) > 0.1 * abs(best)


def next_command(run: Run) -> list[object]:
    """Return the command that averages the last checkpoints, or translates with the best one."""
    state = run.state
    path = run.directory.path
    # A mean with checkpoints from before the last tenth of the run is worse than the last one.
    settled = 0
    for folder in checkpoint.checkpoints_of(path)[-5:]:
        if 10 * checkpoint.read_contents(folder).step >= 9 * state.step:
            settled += 1
    # After --patience, the last checkpoints are past the best one.
    if settled > 1 and not run.out_of_patience:
        return ["average", path, "--last", settled, "--out", path / "averaged"]
    if state.best is None:
        return ["translate", path]
    return ["translate", path / "best"]


def opening_lines(run: Run) -> str:
    """Return lines about the training to come."""
    plan = run.plan
    length = run.length
    updates = run.trainer.updates

    count, learning = parameters_of(run.model)
    parameters = f"{count:,} parameters"
    if learning < count:
        parameters += f", {learning:,} of them trained"
    epochs = f"{readable(length.epochs)} epoch{'' if length.epochs == 1 else 's'}"
    size = f"{plan.batch_tokens:,} tokens"
    if plan.batch_sentences is not None:
        size += f" and {plan.batch_sentences:,} sentences"
    micro_batches = f"micro-batches: {updates.micro_batches}"
    if updates.packed:
        micro_batches += ", packed"
    computing = (
        f"processes: {run.world.size} ({run.world.device.type}); "
        f"precision: {run.trainer.objective.precision}"
    )
    rate = highest_rate(run.trainer.schedule, length.steps)
    if rate is not None:
        computing += f"; highest learning rate: {rate:.2g}"

    pairs = f"{len(run.corpus):,} sentence pairs"
    lines = [
        f"{parameters}; {pairs}; {counted(length.steps, 'step')}, {epochs}",
        f"{size} an update; {micro_batches}; {computing}",
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
    """Return lines about the order of the sentences, and from the entry points of `nmt.advice`.

    Without data, where a training is only sized, there is no `run`.
    """
    lines: list[str] = []
    if run is not None:
        for change in run.plan.changes:
            lines += change.lines(run.length.epochs)
    for function in registry.entries("nmt.advice"):
        lines += function(config, preset, schedule, steps, run, resumed)
    return lines


def parameters_of(model: Any) -> tuple[int, int]:
    """Return the numbers of parameters and of trained parameters, in all processes."""

    def count(parameters: Iterable[Tensor]) -> int:
        return sum(parameter.numel() * ranks_of(parameter) for parameter in parameters)

    return count(model.parameters()), count(trained(model))
