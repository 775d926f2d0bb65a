"""Every registered optimizer and schedule."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from nmt_cli import registry
from nmt_cli.training import optimizer_state
from nmt_cli.training.trainer import step_if

RATE = 0.01


class Toy:
    """Linear regression, whose best loss is 0."""

    def __init__(self, optimizer_config: Any) -> None:
        random = torch.Generator().manual_seed(0)
        self.x = torch.randn(64, 5, generator=random)
        self.y = self.x @ torch.randn(5, 2, generator=random) + 0.5
        self.weight = torch.nn.Parameter(torch.zeros(5, 2))
        self.bias = torch.nn.Parameter(torch.zeros(2))
        self.optimizer = registry.build(optimizer_config, parameters=[self.weight, self.bias])

    def step(self, rate: float = RATE, factor: float = 1.0) -> float:
        """One update, as the trainer does it. The loss before, times `factor`."""
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.zero_grad(set_to_none=True)
        loss = (self.x @ self.weight + self.bias - self.y).square().mean() * factor
        loss.backward()
        step_if(loss.isfinite(), self.optimizer)
        return loss.item()


@pytest.fixture(params=registry.names("optimizer"))
def toy(request: pytest.FixtureRequest, make_config: Callable[..., Any]) -> Callable[[], Toy]:
    return lambda: Toy(make_config("optimizer", request.param))


def test_it_makes_progress(toy: Callable[[], Toy]) -> None:
    one = toy()
    losses = [one.step() for _ in range(400)]
    assert losses[-1] < 0.1 * losses[0]


def test_the_schedule_sets_the_rate(toy: Callable[[], Toy]) -> None:
    """At a rate of 0 no weight changes, and the first step is proportional to the rate."""
    one = toy()
    one.step(rate=0.0)
    assert not one.weight.any()
    lengths = []
    for rate in (0.01, 0.02):
        fresh = toy()
        fresh.step(rate)
        lengths.append(fresh.weight.detach().norm().item())
    assert lengths[1] == pytest.approx(2 * lengths[0], rel=1e-4)


def test_its_state_can_be_saved_and_restored(toy: Callable[[], Toy]) -> None:
    """The saved state is enough to resume bit for bit."""
    one, other = toy(), toy()
    for _ in range(5):
        one.step()
    scalars, tensors = optimizer_state.dump(one.optimizer)
    with torch.no_grad():
        other.weight.copy_(one.weight)
        other.bias.copy_(one.bias)
    optimizer_state.restore(
        other.optimizer, scalars, {name: t.clone() for name, t in tensors.items()}, "here"
    )
    for _ in range(3):
        assert one.step() == other.step()
    assert torch.equal(one.weight, other.weight)


def test_an_update_that_is_not_finite_is_left_out(toy: Callable[[], Toy]) -> None:
    """The first one too: weights and state equal those without it, bit for bit."""
    one, other = toy(), toy()
    for steps in (0, 3):
        for _ in range(steps):
            assert one.step() == other.step()
        one.step(factor=math.nan)
    assert one.step() == other.step()
    (scalars, tensors), (expected, others) = (
        optimizer_state.dump(run.optimizer) for run in (one, other)
    )
    assert scalars == expected
    assert all(torch.equal(tensors[name], others[name]) for name in others)
    assert torch.equal(one.weight, other.weight)


@pytest.mark.parametrize("name", registry.names("schedule"))
def test_schedules_are_pure_and_positive(name: str) -> None:
    config = registry.find("schedule", name).config()
    schedule, another = (registry.build(config, d_model=512) for _ in range(2))
    steps = [1, 2, 3999, 4000, 4001, 100_000, 10**7]
    rates = [schedule(step) for step in steps]
    assert all(rate > 0 and math.isfinite(rate) for rate in rates)
    assert [schedule(step) for step in reversed(steps)] == rates[::-1]
    assert [another(step) for step in steps] == rates
