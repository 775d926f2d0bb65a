"""Statistics of paired samples: each round samples every system, so all meet the same noise."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple


class Spread(NamedTuple):
    """The quartiles of some values."""

    low: float
    median: float
    high: float


class Sample(NamedTuple):
    """One timed sample of a system."""

    case: Mapping[str, Any]  # what was measured, such as {"model": "base", "batch": 32}
    system: str
    round: int
    amount: float  # of work done, such as sentences
    seconds: float

    @property
    def rate(self) -> float:
        """The amount of work in a second."""
        return self.amount / self.seconds


def spread(values: Sequence[float]) -> Spread:
    """Return the quartiles of `values`, at least one."""
    if len(values) == 1:
        return Spread(values[0], values[0], values[0])
    return Spread(*statistics.quantiles(values, n=4, method="inclusive"))


def rates(samples: Sequence[Sample], case: Mapping[str, Any], system: str) -> dict[int, float]:
    """Return the rate of `system` in each round of `case`."""
    return {
        sample.round: sample.rate
        for sample in samples
        if sample.case == case and sample.system == system
    }


def speed(samples: Sequence[Sample], case: Mapping[str, Any], system: str) -> Spread:
    """Return the quartiles over rounds of `system`'s rate."""
    return spread(list(rates(samples, case, system).values()))


def ratio(
    samples: Sequence[Sample], case: Mapping[str, Any], system: str, peer: str
) -> Spread | None:
    """Return the quartiles over rounds of `system`'s rate divided by `peer`'s.

    None if no round has both.
    """
    our_rates, peer_rates = rates(samples, case, system), rates(samples, case, peer)
    paired = [
        our_rates[number] / peer_rates[number]
        for number in sorted(our_rates.keys() & peer_rates.keys())
    ]
    return spread(paired) if paired else None
