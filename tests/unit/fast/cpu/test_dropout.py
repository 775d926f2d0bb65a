"""Dropout on a CPU, which takes its random bits from 64-bit words."""

from __future__ import annotations

import pytest
import torch

from nmt_cli.fast.cpu.device import Fast
from nmt_cli.layers.dropout import Dropout


def dropout(rate: float) -> Dropout:
    """Return dropout as a CPU computes it."""
    module = Dropout(rate)
    Fast(torch.device("cpu")).fit(module)
    return module


@pytest.mark.parametrize("rate", [0.001, 0.1, 0.3, 0.5, 0.9, 0.99])
def test_rate_and_scale(rate: float) -> None:
    """Means over a million draws: within five standard deviations."""
    torch.manual_seed(1)
    count = 1_000_000
    out = dropout(rate)(torch.ones(count))
    remaining = out != 0
    assert (
        abs(remaining.double().mean().item() - (1 - rate))
        < 5 * (rate * (1 - rate) / count) ** 0.5 + 2**-16
    )
    torch.testing.assert_close(out[remaining], torch.full((int(remaining.sum()),), 1 / (1 - rate)))


@pytest.mark.parametrize("shape", [(1,), (3,), (5, 7), (2, 3, 1), (0,), (4, 0, 2)])
def test_any_shape(shape: tuple[int, ...]) -> None:
    """Four elements share a word. The last word may be used in part."""
    assert dropout(0.5)(torch.ones(shape)).shape == shape


def test_elements_are_dropped_independently() -> None:
    """Neighbours share a word: they must not correlate."""
    torch.manual_seed(2)
    remaining = (dropout(0.5)(torch.ones(400_000)) != 0).double() - 0.5
    for distance in (1, 2, 3, 4, 5):
        correlation = 4 * (remaining[distance:] * remaining[:-distance]).mean().item()
        assert abs(correlation) < 5 / 400_000**0.5


def test_gradients_are_masked_like_values() -> None:
    torch.manual_seed(3)
    x = torch.full((1000,), 2.0, requires_grad=True)
    out = dropout(0.25)(x)
    out.sum().backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad, out.detach() / 2)
    assert (x.grad == 0).any()


def test_the_seed_decides() -> None:
    drop, x = dropout(0.5), torch.ones(1000)
    draws = []
    for seed in (7, 7, 8):
        torch.manual_seed(seed)
        draws.append(drop(x))
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])
    assert not torch.equal(draws[2], drop(x))


@pytest.mark.parametrize(("rate", "training"), [(0.0, True), (0.5, False)])
def test_nothing_is_dropped(rate: float, training: bool) -> None:
    x = torch.randn(50)
    assert torch.equal(dropout(rate).train(training)(x), x)


def test_low_precision_keeps_its_type() -> None:
    """Under autocast activations are bfloat16."""
    out = dropout(0.5)(torch.ones(100, dtype=torch.bfloat16))
    assert out.dtype == torch.bfloat16
    assert set(out.tolist()) == {0.0, 2.0}
