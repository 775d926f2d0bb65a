"""Advice before a training: settings that do not suit it."""

from __future__ import annotations

import numpy as np

from nmt_cli.config import RunConfig, resolve
from nmt_cli.errors import counted
from nmt_cli.interfaces import Schedule
from nmt_cli.layers.embedding import learned_positions
from nmt_cli.optim.inverse_sqrt import InverseSqrtConfig
from nmt_cli.training.length import Length
from nmt_cli.training.messages import parameters_of
from nmt_cli.training.run import Run
from nmt_cli.training.settings import TrainingConfig

# A warning is given if the highest learning rate is more than so many times the preset's.
FAR_ABOVE = 2.25

# Beyond both, a model is too large for its corpus. On WMT 2014 EN-DE, the paper's base model has
# 0.5 parameters for a target token and 19 epochs, its big model 1.6 and 58. The parser of section
# 6.3, on the 40,000 sentences of the WSJ alone, has 36 and, with 100,000 steps, 900 epochs.
MANY_EPOCHS = 1000
MANY_PARAMETERS = 20  # for each target token of an epoch


def advice(
    config: RunConfig,
    preset: str | None,
    schedule: Schedule,
    steps: int,
    run: Run | None,
    resumed: bool,
) -> list[str]:
    """Return warnings, as the entry points of `nmt.advice` do."""
    lines = schedule_warnings(schedule, steps, resumed)
    if run is not None:
        lines += data_warnings(run, resumed)
    if not resumed:
        lines += peak_warnings(config, preset)
    return lines


def data_warnings(run: Run, resumed: bool) -> list[str]:
    """Return lines about settings that do not suit the data."""
    lines = []
    positions = learned_positions(run.model)
    if positions is not None:
        lengths = np.maximum(run.corpus.source_lengths[:], run.corpus.target_lengths[:])
        longer = int((lengths > positions).sum())
        if longer:
            lines.append(
                f"warning: {longer:,} of {len(lengths):,} sentence pairs are longer than "
                f"--max-positions {positions}: further tokens share the last"
            )
    is_trained = resumed or run.contents["origin"] is not None
    if is_trained:  # it may refine, and be larger for its corpus
        return lines
    if run.trainer.objective.criterion.refines:
        lines.append(
            "warning: this criterion refines a trained model, and this one is untrained; give "
            "--init-from"
        )
    length = run.length
    count, _ = parameters_of(run.model)
    if is_too_long_for(length, count):
        data = f"{length.target_tokens:,.0f} target tokens, and {length.epochs:,.0f} epochs"
        presets = ", ".join(run.task.presets)
        lines.append(
            f"warning: {count:,} parameters for {data}: the model will overfit; presets by size: "
            f"{presets}"
        )
    return lines


def is_too_long_for(length: Length, parameters: float) -> bool:
    """Return whether a model of so many parameters learns the corpus by heart before the end."""
    return length.epochs > MANY_EPOCHS and parameters > MANY_PARAMETERS * length.target_tokens


def peak_warnings(config: RunConfig, preset: str | None) -> list[str]:
    """Return a line if the highest learning rate is far above the preset's.

    That is so if the warm-up is shorter.
    """
    schedule = config["schedule"]
    usual_schedule = resolve(TrainingConfig, {}, preset=preset)["schedule"]
    if not isinstance(schedule, InverseSqrtConfig):
        return []
    if not isinstance(usual_schedule, InverseSqrtConfig):
        return []
    if schedule.peak_learning_rate is not None:  # as the user has asked
        return []
    d_model = config["model"].d_model
    usual_peak = usual_schedule.peak(d_model)
    peak = schedule.peak(d_model)
    if config.training.max_steps < schedule.warmup_steps:  # the run does not reach it
        peak *= config.training.max_steps / schedule.warmup_steps
    times_shorter = usual_schedule.warmup_steps / schedule.warmup_steps
    if min(peak / usual_peak, times_shorter**0.5) <= FAR_ABOVE:
        return []
    return [
        f"warning: with --warmup-steps {schedule.warmup_steps:,}, the highest learning rate is "
        f"{peak / usual_peak:.1f} times that of {preset or 'the paper'}, and training may diverge; "
        f"--peak-learning-rate {usual_peak:.2g} keeps it"
    ]


def schedule_warnings(schedule: Schedule, steps: int, resumed: bool = False) -> list[str]:
    """Return lines about a schedule that is longer or shorter than the run."""
    warmup: int = getattr(schedule, "warmup_steps", 0)
    decay: int = getattr(schedule, "decay_steps", 0)
    the_rate = f"warning: the run has {counted(steps, 'step')}, and the learning rate"
    lines = []
    if warmup > steps:
        lines.append(f"{the_rate} rises for --warmup-steps {warmup:,}")
    if decay and not 0.9 <= steps / decay <= 1.1:
        line = f"{the_rate} falls until --decay-steps {decay:,}"
        if steps > decay:
            line += f" and stays at {schedule(decay):.2g}"
        if resumed:
            line += "; a new run with --init-from may have another"
        else:
            line += f"; give --decay-steps {steps}"
        lines.append(line)
    return lines
