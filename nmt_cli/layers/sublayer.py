"""The feed-forward network (section 3.3) and the residual connection (sections 3.1 and 5.4)."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nmt_cli.layers.dropout import Dropout

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    "gelu": F.gelu,
    "swish": F.silu,
    "squared_relu": lambda x: torch.relu(x).square(),
}
"""swish is x sigmoid(x). Squared ReLU, max(0, x)^2, is from So et al. 2021, "Primer"."""


class FeedForward(nn.Module):
    """Equation 2: FFN(x) = max(0, x W_1 + b_1) W_2 + b_2, applied to each position.

    Gated, it is (activation(x W) * x V) W_2, without biases (Shazeer 2020, "GLU Variants Improve
    Transformer", equation 6).

    Args:
        activation: one of `ACTIVATIONS`. Gated, they make what that paper calls ReGLU, GEGLU and
            SwiGLU.
    """

    def __init__(
        self, d_model: int, d_ff: int, dropout: float, activation: str = "relu", gated: bool = False
    ) -> None:
        super().__init__()
        self.activation = activation
        self.activate = ACTIVATIONS[activation]
        self.inner = nn.Linear(d_model, d_ff, bias=not gated)
        self.factor = nn.Linear(d_model, d_ff, bias=False) if gated else None
        self.outer = nn.Linear(d_ff, d_model, bias=not gated)
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """[..., d_model] -> [..., d_model]."""
        inner = self.activate(self.inner(x))  # [..., d_ff]
        if self.factor is not None:
            inner = inner * self.factor(x)
        return self.outer(self.dropout(inner))


class Residual(nn.Module):
    """Dropout, residual connection and layer normalisation around a sub-layer.

    Post-norm, as in the paper: LayerNorm(x + Dropout(Sublayer(x))).
    Pre-norm: x + Dropout(Sublayer(LayerNorm(x))).
    """

    def __init__(self, d_model: int, dropout: float, pre_norm: bool) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(d_model)
        self.dropout = Dropout(dropout)
        self.pre_norm = pre_norm

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """`x` [..., d_model] and a function that keeps its shape -> [..., d_model]."""
        if self.pre_norm:
            return x + self.dropout(sublayer(self.norm(x)))
        return self.norm(x + self.dropout(sublayer(x)))
