"""Stochastic gradient descent with momentum."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn

from nmt_cli.annexes.table2.settings import SGDConfig
from nmt_cli.optim.adam import uncompiled


def sgd(config: SGDConfig, *, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """Return PyTorch's fused SGD. The trainer sets the learning rate before every step."""
    nesterov = config.nesterov and config.momentum > 0  # PyTorch refuses it without momentum
    new_sgd = uncompiled(torch.optim.SGD)
    optimizer = new_sgd(parameters, lr=0.0, momentum=config.momentum, nesterov=nesterov, fused=True)
    if config.momentum > 0:
        # PyTorch would make the buffers in the first step, from uninitialised memory if that step
        # is not finite.
        for parameter in optimizer.param_groups[0]["params"]:
            optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
    return optimizer
