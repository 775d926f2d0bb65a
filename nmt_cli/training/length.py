"""The length of a training in steps and epochs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nmt_cli.data.batching import BatchPlan
from nmt_cli.interfaces import Schedule
from nmt_cli.training.settings import TrainingConfig

# Updates from which the number in an epoch is estimated; with fewer in an epoch, it is exact.
SAMPLED_UPDATES = 1000


@dataclass(frozen=True)
class Length:
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
    """Return the length of a training by `plan`: --max-steps or --max-epochs, whichever comes
    first.

    The numbers of an epoch are means over the epochs of the training.
    """
    left, epochs, updates, tokens = float(settings.max_steps), [], [], []
    for begin, end, sample in plan.samples(SAMPLED_UPDATES):
        updates.append(len(sample) * plan.size(begin) / sum(map(len, sample)))
        tokens.append(sum(map(plan.target_tokens, sample)) / len(sample))
        epochs.append(
            max(0.0, min(min(end, settings.max_epochs or end) - begin, left / updates[-1]))
        )
        left -= epochs[-1] * updates[-1]
    made = [count * each for count, each in zip(epochs, updates, strict=True)]
    return Length(_mean(updates, epochs), _mean(tokens, made), max(1, round(sum(made))))


def _mean(values: Sequence[float], weights: Sequence[float]) -> float:
    """Return the weighted mean, which is exact for one value."""
    return values[0] + sum(
        w * (value - values[0]) for value, w in zip(values, weights, strict=True)
    ) / sum(weights)


def highest_rate(schedule: Schedule, steps: int) -> float | None:
    """Return the highest learning rate in so many steps, or None if the schedule has no
    `warmup_steps`.
    """
    warmup: int | None = getattr(schedule, "warmup_steps", None)
    return None if warmup is None else schedule(min(warmup, steps))
