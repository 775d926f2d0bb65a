"""How far a run is: everything that a resumed run must know besides weights and optimizer."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from nmt_cli.errors import CheckpointError
from nmt_cli.training.costs import CostMeter, Spent


@dataclass
class Window:
    """Sums since the last report."""

    steps: int = 0
    loss: float = 0.0  # smoothed, summed over target tokens
    nll: float = 0.0  # nats, summed over target tokens
    target_tokens: int = 0
    source_tokens: int = 0
    seconds: float = 0.0  # of training steps, by the clock
    spent: Spent = field(default_factory=Spent)
    flops: float = 0.0  # counted from the model's shapes; 0 where the model cannot say
    gradient_norm: float = 0.0  # of the last step


@dataclass
class Progress:
    """The cursor in the data, the counters, and the best validation so far."""

    step: int = 0
    epoch: int = 0
    position: int = 0  # next update in the epoch's plan
    target_tokens: int = 0
    source_tokens: int = 0
    training_seconds: float = 0.0
    spent: Spent = field(default_factory=Spent)
    flops: float = 0.0
    skipped: int = 0  # updates left out because they were not finite
    best_loss: float | None = None
    best_step: int = 0
    stale_validations: int = 0  # since the best
    window: Window = field(default_factory=Window)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any], origin: str) -> Progress:
        """What `to_json` wrote.

        Raises:
            CheckpointError: a name is missing or unknown, or a value is no number, or a negative one.
        """
        try:
            window = Window(**{**values["window"], "spent": _spent(values["window"])})
            progress = cls(**{**values, "spent": _spent(values), "window": window})
        except (TypeError, KeyError) as error:
            known = ", ".join(f.name for f in fields(cls))
            raise CheckpointError(f"{origin}: not the progress of a run ({error}); expected {known}") from error
        _check_numbers(progress, Progress(best_loss=0.0), origin)
        _check_numbers(window, Window(), origin)
        for spent in (progress.spent, window.spent):
            _check_numbers(spent, Spent(), origin)
        return progress

    def assume_spent(self, costs: CostMeter) -> bool:
        """Counts what a checkpoint of before `spent` was kept does not say: as if these devices had done its steps.

        Returns:
            Whether it was such a one.
        """
        if self.spent.device_seconds or not self.training_seconds:
            return False
        self.spent, self.window.spent = costs.of(self.training_seconds), costs.of(self.window.seconds)
        return True

    def count(self, update: Window) -> None:
        """Adds one update to the counters and to the window."""
        window = self.window
        for name in ("steps", "loss", "nll", "target_tokens", "source_tokens", "seconds", "spent", "flops"):
            setattr(window, name, getattr(window, name) + getattr(update, name))
        window.gradient_norm = update.gradient_norm
        self.target_tokens += update.target_tokens
        self.source_tokens += update.source_tokens
        self.training_seconds += update.seconds
        self.spent += update.spent
        self.flops += update.flops


def _spent(values: dict[str, Any]) -> Spent:
    """The sums that `values` has; a checkpoint of before they were kept has none."""
    return Spent(**values.get("spent", {}))


def _check_numbers(counters: Any, like: Any, origin: str) -> None:
    """Raises CheckpointError unless every field is a finite number of its type in `like`, and no count is negative."""
    for f in fields(counters):
        value, kind = getattr(counters, f.name), type(getattr(like, f.name))
        if kind in (Window, Spent) or (value is None and f.name == "best_loss"):
            continue
        least = -sys.float_info.max if f.name in ("loss", "nll", "best_loss") else 0
        if type(value) not in ((int,) if kind is int else (int, float)) or not least <= value <= sys.float_info.max:
            raise CheckpointError(f"{origin}: the run's {f.name} is {value!r}; expected a {kind.__name__}")
