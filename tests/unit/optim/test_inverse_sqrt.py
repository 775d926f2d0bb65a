"""Settings of the schedule; tests/paper has equation 3."""

from __future__ import annotations

import pytest

from nmt_cli.optim.inverse_sqrt import InverseSqrt, InverseSqrtConfig


def test_the_scale_is_a_factor() -> None:
    plain, scaled = (
        InverseSqrt(InverseSqrtConfig(warmup_steps=10, learning_rate_scale=scale), d_model=64) for scale in (1.0, 2.5)
    )
    for step in (1, 9, 10, 11, 1000):
        assert scaled(step) == pytest.approx(2.5 * plain(step))


@pytest.mark.parametrize("warmup", [1, 2, 300])
def test_the_peak_is_at_the_end_of_the_warmup(warmup: int) -> None:
    schedule = InverseSqrt(InverseSqrtConfig(warmup_steps=warmup), d_model=64)
    rates = [schedule(step) for step in range(1, 1000)]
    assert schedule.peak == max(rates)
    assert rates.index(max(rates)) + 1 == warmup
