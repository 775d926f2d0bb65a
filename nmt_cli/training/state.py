"""The state of a run: everything that resuming needs besides the weights and the optimizer."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Self

from nmt_cli.config import restored
from nmt_cli.errors import CheckpointError, UsageError, shown
from nmt_cli.metrics.bleu import error_rates

LOSS = "loss"  # the measure that every task has
ACTIONS = ("validate", "log", "save")  # the actions that can be due after an update, in this order


def is_error(measure: str) -> bool:
    """Return whether less of a measure is better."""
    return measure == LOSS or measure in error_rates()


def perplexity(nll: float) -> float:
    """Return exp(nll), bounded so that it is finite."""
    return math.exp(min(nll, 700.0))


def _count(default: float = 0) -> Any:
    return field(default=default, metadata={"minimum": 0})


@dataclass
class Totals:
    """Sums over updates: over the whole run, or since the last log line."""

    loss: float = 0.0  # label-smoothed, summed over target tokens
    nll: float = 0.0  # in nats, summed over target tokens
    target_tokens: int = _count()
    source_tokens: int = _count()
    seconds: float = _count(0.0)  # of training updates
    flops: float = _count(0.0)  # from the model's shapes. 0 if the model does not count them.
    device_seconds: float = _count(0.0)
    flops_as_table2: float = _count(0.0)  # device-seconds x the sustained rate
    possible_flops: float = _count(0.0)  # device-seconds x the peak rate
    waiting: float = _count(0.0)  # the part of `seconds` in which the next batch was not there yet

    def add(self, other: Totals) -> None:
        for name in [entry.name for entry in fields(self)]:
            setattr(self, name, getattr(self, name) + getattr(other, name))


@dataclass
class RunState:
    """The position in the data, the counters, the best validation, and the pending actions."""

    step: int = _count()
    epoch: int = _count()
    position: int = _count()  # next update in the epoch's plan
    micro_batches: int = _count()  # in an update, as chosen for this number of ranks
    ranks: int = _count()  # 0 before the choice
    skipped: int = _count()  # updates left out because they were not finite
    gradient_norm: float = _count(0.0)  # of the last update
    epochs: int = _count()  # completed
    best: float | None = None  # value of --best-by over all validations
    best_step: int = _count()
    best_figures: dict[str, float] = field(default_factory=dict)  # of the best validation, by name
    last: float | None = None  # value of --best-by in the last validation
    validation_set: str = ""  # fingerprint of the validation set. "" in runs of version 1.0.
    tokenization: str = "13a"  # of validation BLEU
    stale_validations: int = _count()  # since the best
    pending: list[str] = field(default_factory=list)  # actions of the last step, still to be done
    total: Totals = field(default_factory=Totals)
    window: Totals = field(default_factory=Totals)  # since the last log line

    def judge(self, figures: Mapping[str, float], measure: str) -> None:
        """Record the figures of this step's validation as the best ones, or as no improvement.

        A model that has just begun to learn scores 0. As long as it does, the loss decides.
        """
        value = figures[measure]
        best = self.best
        self.last = None
        if math.isfinite(value):
            self.last = value
        if best is None:
            improved = math.isfinite(value)
        elif value == best == 0 and not is_error(measure):
            improved = figures[LOSS] < self.best_figures.get(LOSS, math.inf)
        elif is_error(measure):
            improved = value < best
        else:
            improved = value > best
        if improved:
            self.best = value
            self.best_step = self.step
            self.best_figures = dict(figures)
            self.stale_validations = 0
        else:
            self.stale_validations += 1

    @classmethod
    def from_json(cls, values: dict[str, Any], place: str) -> Self:
        """Return the state that `asdict` made `values` of.

        Raises:
            CheckpointError: they are not the values of a state. The message begins with `place`.
        """
        try:
            total = restored(Totals, values.get("total"), place)
            window = restored(Totals, values.get("window"), place)
            state: Self = restored(cls, {**values, "total": total, "window": window}, place)
        except UsageError as error:
            raise CheckpointError(str(error)) from error
        # A figure that was not finite is null in JSON.
        figures = state.best_figures.items()
        state.best_figures = {name: value for name, value in figures if isinstance(value, float)}
        if not all(action in ACTIONS for action in state.pending):
            raise CheckpointError(
                f"{place}: the run's pending actions are {shown(state.pending)}; known are "
                f"{ACTIONS}"
            )
        return state
