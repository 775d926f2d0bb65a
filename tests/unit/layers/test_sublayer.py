"""Post-norm and pre-norm, and dropout within the feed-forward network."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from nmt_cli.layers.sublayer import FeedForward, Residual


def test_pre_norm() -> None:
    around = Residual(6, dropout=0.0, pre_norm=True)
    x = torch.randn(2, 3, 6)
    torch.testing.assert_close(around(x, torch.sin), x + F.layer_norm(x, (6,)).sin())


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
