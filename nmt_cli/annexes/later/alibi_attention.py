"""Attention with linear biases (Press, Smith and Lewis 2022, "Train Short, Test Long", section 3).

Letters as in `attention.py`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from nmt_cli.layers.attention import AttentionMask, Kernel, softmax_weights


class AlibiAttention(Kernel):
    """softmax(Q K^T / sqrt(d_k) - m |i - j|) V for query i and key j. Each head has a slope m.

    The paper has causal attention only. In the encoder both directions have the same slopes, the
    first of the ways that its authors propose (issue 5 of their repository,
    ofirpress/attention_with_linear_biases).
    """

    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: AttentionMask) -> Tensor:
        heads = query.size(1)
        distances = mask.distances(query, key).abs()  # [T, S]
        bias = -slopes(heads, query.device)[:, None, None] * distances  # [H, T, S]
        weights = self.dropout(softmax_weights(query, key, mask, bias))
        return torch.matmul(weights.to(value.dtype), value)  # a GPU decodes in bfloat16


def slopes(num_heads: int, device: torch.device | None = None) -> Tensor:
    """2^(-8i/h) for heads i = 1 to h: [H].

    This is the paper's formula. Where h is not a power of two, the paper's code has other slopes.
    """
    return 2.0 ** (torch.arange(1, num_heads + 1, device=device) * (-8.0 / num_heads))
