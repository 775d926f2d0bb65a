"""Layouts of attention in a decoding step: the keys that the newest positions see.

Letters: A sentences, W hypotheses of each, N = A * W, S source length, T positions so far, H heads.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from nmt_cli.layers.attention import AttentionMask, Kernel


@dataclass
class Past:
    """The newest positions of N hypotheses attend to their own pasts and become a part of them."""

    key: Tensor  # [N, H, T, d_k], of the positions so far
    value: Tensor  # [N, H, T, d_v]

    def attend(self, kernel: Kernel, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """See `Layout`."""
        length = self.key.size(2)
        position = torch.tensor([length], device=query.device)
        query = kernel.placed(query, position)
        key = kernel.placed(key, position)
        self.key = torch.cat([self.key, key[:, :, None]], dim=2)
        self.value = torch.cat([self.value, value[:, :, None]], dim=2)
        mask = AttentionMask(causal=True, offset=length)
        heads: Tensor = kernel(query[:, :, None], self.key, self.value, mask)  # [N, H, 1, d_v]
        return heads[:, :, 0]


@dataclass(frozen=True)
class ToSource:
    """The newest positions of hypotheses attend to the keys and values of their sentences."""

    mask: AttentionMask

    def attend(self, kernel: Kernel, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """See `Layout`: [N, H, d_k], [A, H, S, d_k] and [A, H, S, d_v] -> [N, H, d_v]."""
        A = len(key)
        _, H, d_k = query.shape
        query = query.view(A, -1, H, d_k).transpose(1, 2)  # [A, H, W, d_k]
        heads: Tensor = kernel(query, key, value, self.mask)  # [A, H, W, d_v]
        return heads.transpose(1, 2).flatten(0, 1)
