"""Self-attention with rotary positions (Su et al. 2021, "RoFormer", section 3.2).

Letters as in `attention.py`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from nmt_cli.annexes.later.settings import RotaryAttentionConfig
from nmt_cli.errors import UsageError
from nmt_cli.layers.attention import FullAttention


class RotaryAttention(FullAttention):
    """Full attention of queries and keys that are rotated by their positions.

    Raises:
        UsageError: `d_k` is odd.
    """

    def __init__(
        self, config: RotaryAttentionConfig, *, dropout: float = 0.0, d_k: int, d_v: int
    ) -> None:
        super().__init__(dropout=dropout)
        if d_k % 2:
            raise UsageError(
                f"--attention rotary rotates pairs: d_k must be even, not {d_k}; set --d-k"
            )

    def placed(self, x: Tensor, positions: Tensor) -> Tensor:
        """See `Kernel`."""
        return rotated(x, positions)


def rotated(x: Tensor, positions: Tensor) -> Tensor:
    """Rotate pair i by the angle position / 10000^(2i/d_k): [..., d_k] -> [..., d_k].

    Pair i is the dimensions i and i + d_k / 2. In the paper it is 2i and 2i + 1. The projections
    before can learn either.

    Args:
        positions: broadcasts to the shape of `x` without its last dimension.
    """
    d_k = x.size(-1)
    frequencies = 10000.0 ** (torch.arange(0, d_k, 2, device=x.device) / -d_k)  # [d_k / 2]
    angles = positions[..., None] * frequencies
    angles = torch.cat([-angles, angles], -1)  # [..., d_k]
    others = x.roll(d_k // 2, -1)  # of each pair, the other dimension
    return x * angles.cos().type_as(x) + others * angles.sin().type_as(x)
