"""The state of a run: everything that resuming needs besides the weights and the optimizer."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Self

from nmt_cli.errors import CheckpointError

ACTIONS = ("validate", "log", "save")
"""What can be due after an update, in this order."""


@dataclass
class Totals:
    """Sums over updates: over the whole run, or since the last log line."""

    loss: float = 0.0  # label-smoothed, summed over target tokens
    nll: float = 0.0  # in nats, summed over target tokens
    target_tokens: int = 0
    source_tokens: int = 0
    seconds: float = 0.0  # of training updates
    flops: float = 0.0  # counted from the model's shapes; 0 if the model does not count them
    device_seconds: float = 0.0
    flops_as_table2: float = 0.0  # device-seconds x the sustained rate
    possible_flops: float = 0.0  # device-seconds x the peak rate

    def add(self, other: Totals) -> None:
        """Add `other` in place."""
        for f in fields(self):
            setattr(self, f.name, getattr(self, f.name) + getattr(other, f.name))


@dataclass
class TrainState:
    """The position in the data, the counters, the best validation so far, and the actions still pending."""

    step: int = 0
    epoch: int = 0
    position: int = 0  # next update in the epoch's plan
    skipped: int = 0  # updates left out because they were not finite
    gradient_norm: float = 0.0  # of the last update
    best_loss: float | None = None
    best_step: int = 0
    stale_validations: int = 0  # since the best
    pending: list[str] = field(default_factory=list)  # actions of the last step that are still to be done
    total: Totals = field(default_factory=Totals)
    window: Totals = field(default_factory=Totals)  # since the last log line

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any], origin: str) -> Self:
        """Return the state that `to_json` wrote.

        Raises:
            CheckpointError: a name is missing or unknown, or a value is invalid.
        """
        try:
            state = cls(**{**values, "total": Totals(**values["total"]), "window": Totals(**values["window"])})
        except (TypeError, KeyError) as error:
            raise CheckpointError(f"{origin}: not the state of a run: {error}") from error
        if not isinstance(state.pending, list) or not all(action in ACTIONS for action in state.pending):
            raise CheckpointError(f"{origin}: the run's pending actions are {state.pending!r}; known are {ACTIONS}")
        _check_numbers(state, cls(best_loss=None if state.best_loss is None else 0.0), origin)
        for totals in (state.total, state.window):
            _check_numbers(totals, Totals(), origin)
        return state


def _check_numbers(counters: Any, like: Any, origin: str) -> None:
    """Raise CheckpointError unless every number is finite, of its type in `like`, and no count is negative."""
    for f in fields(counters):
        value, kind = getattr(counters, f.name), type(getattr(like, f.name))
        if kind not in (int, float):
            continue
        valid = type(value) in (int, kind) and (kind is int or abs(value) <= sys.float_info.max)
        if not valid or (value < 0 and f.name not in ("loss", "nll", "best_loss")):
            raise CheckpointError(f"{origin}: the run's {f.name} is {value!r}; expected a {kind.__name__}")
