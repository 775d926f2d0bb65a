"""Which keys the newest positions of hypotheses see in a decoding step: layouts of attention
(section 3.2.3).

Letters: A sentences, W hypotheses of each, N = A * W, S source length, T positions so far, H heads.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from nmt_cli.layers.attention import AttentionMask, Kernel


@dataclass
class Past:
    """The newest positions of N hypotheses, which attend to their own pasts, and become a part of
    them.
    """

    key: Tensor  # [N, H, T, d_k], of the positions so far
    value: Tensor  # [N, H, T, d_v]

    def attend(self, kernel: Kernel, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """See `Layout`."""
        length = self.key.size(2)
        position = torch.tensor([length], device=query.device)
        query, key = kernel.placed(query, position), kernel.placed(key, position)
        self.key = torch.cat([self.key, key[:, :, None]], dim=2)
        self.value = torch.cat([self.value, value[:, :, None]], dim=2)
        heads: Tensor = kernel(
            query[:, :, None], self.key, self.value, AttentionMask(causal=True, offset=length)
        )
        return heads[:, :, 0]


@dataclass(frozen=True)
class ToSource:
    """The newest positions of hypotheses, with keys [A, H, S, d_k] and values [A, H, S, d_v] of
    their sentences.
    """

    mask: AttentionMask

    def attend(self, kernel: Kernel, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """See `Layout`."""
        A, H, d_k = len(key), *query.shape[1:]
        # [A, H, W, d_v]
        heads: Tensor = kernel(query.view(A, -1, H, d_k).transpose(1, 2), key, value, self.mask)
        return heads.transpose(1, 2).flatten(0, 1)
