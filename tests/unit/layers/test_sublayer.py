"""Post-norm and pre-norm, and dropout within the feed-forward network."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from nmt_cli.layers.sublayer import FeedForward, Residual


def test_pre_norm() -> None:
    around = Residual(6, dropout=0.0, pre_norm=True)
    x = torch.randn(2, 3, 6)
    torch.testing.assert_close(around(x, torch.sin), x + F.layer_norm(x, (6,)).sin())


def test_dropout_of_pre_norm_is_on_the_output_of_the_sub_layer() -> None:
    around = Residual(64, dropout=0.5, pre_norm=True).train()
    changed = around(torch.ones(1, 4, 64), lambda y: torch.full_like(y, 1000.0))
    assert changed.unique().tolist() == [1.0, 2001.0]


def test_feed_forward_dropout_falls_between_the_two_layers() -> None:
    torch.manual_seed(0)
    network = FeedForward(4, 1000, dropout=0.5).train()
    with torch.no_grad():
        network.inner.weight.zero_()
        network.inner.bias.fill_(1.0)
        network.outer.weight.fill_(0.001)
        network.outer.bias.fill_(7.0)
    out = network(torch.zeros(50, 4))
    assert (out - 7.0).std(0).min() > 0.005  # each row sums about half of 1000 doubled units
    torch.testing.assert_close(out[:, 0], out[:, 3])
    torch.testing.assert_close(out.mean(), torch.tensor(8.0), atol=0.05, rtol=0)
    torch.testing.assert_close(network.eval()(torch.zeros(1, 4)), torch.full((1, 4), 8.0))


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("activation", ["relu", "gelu", "swish", "squared_relu"])
def test_variants_of_feed_forward(activation: str, gated: bool) -> None:
    """FFN(x) = f(x W + b) W_2 + b_2, and gated f(x W) (x V) W_2 (Shazeer, 2020), by number."""
    torch.manual_seed(0)
    network = FeedForward(3, 5, dropout=0.0, activation=activation, gated=gated).requires_grad_(
        False
    )
    f = {
        "relu": lambda y: max(y, 0.0),
        "gelu": lambda y: y * (1 + math.erf(y / math.sqrt(2))) / 2,
        "swish": lambda y: y / (1 + math.exp(-y)),
        "squared_relu": lambda y: max(y, 0.0) ** 2,
    }[activation]
    x = torch.randn(3)
    expected = torch.zeros(3) if gated else network.outer.bias.clone()
    for unit in range(5):
        y = float(network.inner.weight[unit] @ x) + (
            0.0 if gated else float(network.inner.bias[unit])
        )
        factor = float(network.factor.weight[unit] @ x) if network.factor is not None else 1.0
        expected += f(y) * factor * network.outer.weight[:, unit]
    torch.testing.assert_close(network(x[None])[0], expected)
    assert {name for name, _ in network.named_parameters()} == (
        {"inner.weight", "factor.weight", "outer.weight"}
        if gated
        else {"inner.weight", "inner.bias", "outer.weight", "outer.bias"}
    )
