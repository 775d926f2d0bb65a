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

# Highest learning rates, as multiples of the preset's, from which a warning is given.
FAR_ABOVE = 2.25

MANY_EPOCHS = 1000
MANY_PARAMETERS = 20
"""Epochs, and parameters for each target token of an epoch, beyond both of which a model is too
large for its corpus.

The paper's base model has 0.5 parameters a token of WMT 2014 EN-DE, and 19 epochs; its big model
1.6, and 58. The parser of section 6.3, on the 40,000 sentences of the WSJ alone, has 36, and with
100,000 steps 900 epochs.
"""


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
    return lines if resumed else lines + peak_warnings(config, preset)


def data_warnings(run: Run, resumed: bool) -> list[str]:
    """Return lines about settings that do not suit the data. A trained model may be larger for its
    corpus.
    """
    lines = []
    adapts = resumed or run.contents["origin"] is not None
    if (positions := learned_positions(run.model)) is not None:
        lengths = np.maximum(run.corpus.source_lengths[:], run.corpus.target_lengths[:])
        if longer := int((lengths > positions).sum()):
            pairs = f"{longer:,} of {len(lengths):,} sentence pairs"
            lines.append(
                f"warning: {pairs} are longer than --max-positions {positions}: further tokens "
                "share the last"
            )
    if not adapts and run.trainer.objective.criterion.refines:
        lines.append(
            "warning: this criterion refines a trained model, and this one is untrained; give "
            "--init-from"
        )
    count, length = parameters_of(run.model)[0], run.length
    if not adapts and is_too_long_for(length, count):
        data = f"{length.target_tokens:,.0f} target tokens, and {length.epochs:,.0f} epochs"
        presets = ", ".join(run.task.presets)
        lines.append(
            f"warning: {count:,} parameters for {data}: the model will overfit; presets by size: "
            f"{presets}"
        )
    return lines


def is_too_long_for(length: Length, parameters: float) -> bool:
    """Return whether a model of so many parameters will have learned the corpus by heart long
    before the end.
    """
    return length.epochs > MANY_EPOCHS and parameters > MANY_PARAMETERS * length.target_tokens


def peak_warnings(config: RunConfig, preset: str | None) -> list[str]:
    """Return a line if the highest learning rate is far above the preset's because the warm-up is
    shorter.
    """
    ours, theirs = config["schedule"], resolve(TrainingConfig, {}, preset=preset)["schedule"]
    if not isinstance(ours, InverseSqrtConfig) or not isinstance(theirs, InverseSqrtConfig):
        return []
    peak, usual = (schedule.peak(config["model"].d_model) for schedule in (ours, theirs))
    peak *= min(1.0, config.training.max_steps / ours.warmup_steps)  # which the run may not reach
    shorter = theirs.warmup_steps / ours.warmup_steps
    if ours.peak_learning_rate is not None or min(peak / usual, shorter**0.5) <= FAR_ABOVE:
        return []
    return [
        f"warning: with --warmup-steps {ours.warmup_steps:,}, the highest learning rate is "
        f"{peak / usual:.1f} times "
        f"that of {preset or 'the paper'}, and training may diverge; --peak-learning-rate "
        f"{usual:.2g} keeps it"
    ]


def schedule_warnings(schedule: Schedule, steps: int, resumed: bool = False) -> list[str]:
    lines, has = [], f"warning: the run has {counted(steps, 'step')}, and the learning rate"
    warmup, decay = (getattr(schedule, name, 0) for name in ("warmup_steps", "decay_steps"))
    if warmup > steps:
        lines.append(f"{has} rises for --warmup-steps {warmup:,}")
    if decay and not 0.9 <= steps / decay <= 1.1:
        stays = f" and stays at {schedule(decay):.2g}" if steps > decay else ""
        advice = (
            "a new run with --init-from may have another"
            if resumed
            else f"give --decay-steps {steps}"
        )
        lines.append(f"{has} falls until --decay-steps {decay:,}{stays}; {advice}")
    return lines
