"""AdamW: Adam with decoupled weight decay (Loshchilov and Hutter 2019, algorithm 2)."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn

from nmt_cli.annexes.later.settings import AdamWConfig
from nmt_cli.optim.adam import uncompiled


def adamw(config: AdamWConfig, *, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """Return PyTorch's fused AdamW. Matrices decay, embeddings too. Vectors, as biases and norms,
    do not.
    """
    both: tuple[list[nn.Parameter], list[nn.Parameter]] = [], []
    for each in parameters:
        both[each.dim() > 1].append(each)
    decays = 0.0, config.weight_decay
    groups = [
        {"params": group, "weight_decay": decay} for group, decay in zip(both, decays, strict=True)
    ]
    make = uncompiled(torch.optim.AdamW)
    return make(groups, lr=0.0, betas=(config.beta1, config.beta2), eps=config.epsilon, fused=True)
