"""AdamW: Adam with decoupled weight decay (Loshchilov and Hutter 2019, algorithm 2)."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn

from nmt_cli.annexes.later.settings import AdamWConfig
from nmt_cli.optim.adam import uncompiled


def adamw(config: AdamWConfig, *, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """Return PyTorch's fused AdamW. Matrices decay. Vectors, such as biases and norms, do not."""
    vectors = []
    matrices = []
    for parameter in parameters:
        if parameter.dim() > 1:
            matrices.append(parameter)
        else:
            vectors.append(parameter)
    groups = [
        {"params": vectors, "weight_decay": 0.0},
        {"params": matrices, "weight_decay": config.weight_decay},
    ]
    make = uncompiled(torch.optim.AdamW)
    return make(groups, lr=0.0, betas=(config.beta1, config.beta2), eps=config.epsilon, fused=True)
