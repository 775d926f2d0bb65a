"""SGD's configuration reaches PyTorch's SGD."""

from __future__ import annotations

import pytest
import torch

from nmt_cli.annexes.table2.settings import SGDConfig
from nmt_cli.annexes.table2.sgd import sgd


@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_it_is_the_momentum_of_the_definition(momentum: float, nesterov: bool) -> None:
    """v = momentum v + g. The weight moves along v, or along g + momentum v in Nesterov's form."""
    weight, rate = torch.nn.Parameter(torch.tensor([1.0, -2.0])), 0.1
    optimizer = sgd(SGDConfig(momentum, nesterov), parameters=[weight])
    expected, velocity = weight.detach().clone(), torch.zeros(2)
    for step in range(4):
        gradient = torch.tensor([1.0, 2.0]) * (step - 1.5)
        velocity = momentum * velocity + gradient
        expected = expected - rate * (gradient + momentum * velocity if nesterov else velocity)
        weight.grad, optimizer.param_groups[0]["lr"] = gradient, rate
        optimizer.step()
        torch.testing.assert_close(weight.detach(), expected)
