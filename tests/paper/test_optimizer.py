"""Section 5.3: Adam's constants, and equation 3."""

from __future__ import annotations

import math

import pytest
import torch

from nmt_cli.config import resolve
from nmt_cli.optim.adam import AdamConfig, adam
from nmt_cli.optim.inverse_sqrt import InverseSqrt, InverseSqrtConfig
from nmt_cli.registry import discover
from nmt_cli.training.settings import TrainingConfig


def test_adams_constants() -> None:
    optimizer = adam(AdamConfig(), parameters=[torch.nn.Parameter(torch.zeros(1))])
    assert optimizer.defaults["betas"] == (0.9, 0.98)
    assert optimizer.defaults["eps"] == 1e-9
    assert optimizer.defaults["weight_decay"] == 0


def test_adam_is_kingma_and_bas() -> None:
    """Three updates of one weight, by the formulas of their Algorithm 1."""
    weight = torch.nn.Parameter(torch.tensor([1.0]))
    optimizer = adam(AdamConfig(), parameters=[weight])
    theta, m, v = 1.0, 0.0, 0.0
    for t, (rate, gradient) in enumerate([(0.1, 2.0), (0.2, -1.0), (0.05, 0.5)], start=1):
        optimizer.param_groups[0]["lr"] = rate
        weight.grad = torch.tensor([gradient])
        optimizer.step()
        m, v = 0.9 * m + 0.1 * gradient, 0.98 * v + 0.02 * gradient**2
        theta -= rate * (m / (1 - 0.9**t)) / (math.sqrt(v / (1 - 0.98**t)) + 1e-9)
        assert weight.item() == pytest.approx(theta, rel=1e-6)


@pytest.mark.parametrize("step", [1, 2, 399, 400, 401, 4000, 4001, 300_000])
@pytest.mark.parametrize(("d_model", "warmup"), [(512, 4000), (1024, 400), (256, 1)])
def test_equation_3(step: int, d_model: int, warmup: int) -> None:
    schedule = InverseSqrt(InverseSqrtConfig(warmup_steps=warmup), d_model=d_model)
    expected = d_model**-0.5 * min(step**-0.5, step * warmup**-1.5)
    assert schedule(step) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("preset", "peak"), [("transformer_base", 7.0e-4), ("transformer_big", 4.9e-4)]
)
def test_peaks_at_step_4000(preset: str, peak: float) -> None:
    discover()
    config = resolve(TrainingConfig, {}, preset=preset)
    schedule = InverseSqrt(config["schedule"], d_model=config["model"].d_model)
    rates = [schedule(step) for step in range(1, 20_001)]
    assert max(rates) == pytest.approx(peak, abs=0.05e-4)
    assert rates.index(max(rates)) + 1 == 4000
    assert schedule(schedule.warmup_steps) == max(rates)


def test_no_gradient_clipping() -> None:
    """The paper has none."""
    assert TrainingConfig().clip_norm == 0.0
