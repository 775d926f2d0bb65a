"""Settings of the schedule. Tests/paper has equation 3."""

from __future__ import annotations

import pytest

from nmt_cli.annexes.later.linear_decay import LinearDecay, LinearDecayConfig
from nmt_cli.optim.inverse_sqrt import InverseSqrt, InverseSqrtConfig


def test_the_scale_of_a_peak_is_that_of_the_documents() -> None:
    """docs/train.md and --help: peak = scale / sqrt(d_model * warmup).

    Equation 3 is written out.
    """
    d_model, warmup, peak = 512, 4000, 0.0005
    scale = peak * (d_model * warmup) ** 0.5
    assert scale == pytest.approx(0.7155, abs=5e-5)
    equation3 = [
        scale * d_model**-0.5 * min(step**-0.5, step * warmup**-1.5) for step in range(1, 10_000)
    ]
    assert max(equation3) == equation3[warmup - 1] == pytest.approx(peak)
    for built in (
        InverseSqrt(InverseSqrtConfig(warmup, peak_learning_rate=peak), d_model=d_model),
        LinearDecay(
            LinearDecayConfig(warmup, peak_learning_rate=peak, decay_steps=10_000), d_model=d_model
        ),
        InverseSqrt(InverseSqrtConfig(warmup, scale), d_model=d_model),
        LinearDecay(LinearDecayConfig(warmup, scale, decay_steps=10_000), d_model=d_model),
    ):
        assert max(map(built, range(1, 10_000))) == built(warmup) == pytest.approx(peak)
