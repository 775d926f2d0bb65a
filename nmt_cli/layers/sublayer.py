"""The feed-forward network (section 3.3) and what stands around every sub-layer (sections 3.1 and 5.4)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from nmt_cli.layers.dropout import Dropout


class FeedForward(nn.Module):
    """Equation 2: FFN(x) = max(0, x W_1 + b_1) W_2 + b_2, at every position alike."""

    def __init__(self, d_model: int, d_ff: int, dropout: float) -> None:
        super().__init__()
        self.inner = nn.Linear(d_model, d_ff)
        self.outer = nn.Linear(d_ff, d_model)
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """[..., d_model] -> [..., d_model]."""
        result: Tensor = self.outer(self.dropout(torch.relu(self.inner(x))))
        return result


class Residual(nn.Module):
    """What stands around a sub-layer.

    Post-norm (sections 3.1 and 5.4): LayerNorm(x + Dropout(Sublayer(x))).
    Pre-norm: x + Dropout(Sublayer(LayerNorm(x))).
    """

    def __init__(self, d_model: int, dropout: float, pre_norm: bool) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(d_model)
        self.dropout = Dropout(dropout)
        self.pre_norm = pre_norm

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """`x` [B, T, d_model] and the sub-layer as a function of the same shape."""
        inner = self.norm(x) if self.pre_norm else x
        result: Tensor = x + self.dropout(sublayer(inner))
        return result if self.pre_norm else self.norm(result)
