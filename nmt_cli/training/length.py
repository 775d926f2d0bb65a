"""The length of a training in steps and epochs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nmt_cli.data.batching import BatchPlan
from nmt_cli.interfaces import Schedule
from nmt_cli.training.settings import TrainingConfig

# Updates from which the number in an epoch is estimated. A smaller number is exact.
SAMPLED_UPDATES = 1000


@dataclass(frozen=True)
class Length:
    """The length of a training."""

    updates_per_epoch: float  # estimated where an epoch has more than `SAMPLED_UPDATES`
    target_tokens_per_update: float  # on average
    steps: int  # updates from the first to the last one, if validation does not end the run earlier

    @property
    def epochs(self) -> float:
        return self.steps / self.updates_per_epoch

    @property
    def target_tokens(self) -> float:
        return self.target_tokens_per_update * self.updates_per_epoch


def length_of(plan: BatchPlan, settings: TrainingConfig) -> Length:
    """Return the length of a training by `plan`: --max-steps or --max-epochs, whichever is first.

    The numbers of an epoch are means over the epochs of the training.
    """
    # Epochs that are alike are a stage. By stage:
    updates_per_epoch = []
    tokens_per_update = []
    epochs = []
    steps = []
    steps_left = float(settings.max_steps)
    for first_epoch, end, sample in plan.samples(SAMPLED_UPDATES):
        sampled_sentences = sum(map(len, sample))
        sampled_tokens = sum(map(plan.target_tokens, sample))
        updates_per_epoch.append(len(sample) * plan.size(first_epoch) / sampled_sentences)
        tokens_per_update.append(sampled_tokens / len(sample))
        if settings.max_epochs is not None:
            end = min(end, settings.max_epochs)
        stage_epochs = max(0.0, min(end - first_epoch, steps_left / updates_per_epoch[-1]))
        epochs.append(stage_epochs)
        steps.append(stage_epochs * updates_per_epoch[-1])
        steps_left -= steps[-1]
    return Length(
        updates_per_epoch=_mean(updates_per_epoch, epochs),
        target_tokens_per_update=_mean(tokens_per_update, steps),
        steps=max(1, round(sum(steps))),
    )


def _mean(values: Sequence[float], weights: Sequence[float]) -> float:
    """Return the weighted mean, which is exact for one value."""
    first = values[0]
    differences = [w * (value - first) for value, w in zip(values, weights, strict=True)]
    return first + sum(differences) / sum(weights)


def highest_rate(schedule: Schedule, steps: int) -> float | None:
    """Return the highest learning rate in so many steps, where the schedule has `warmup_steps`."""
    warmup: int | None = getattr(schedule, "warmup_steps", None)
    if warmup is None:
        return None
    return schedule(min(warmup, steps))
