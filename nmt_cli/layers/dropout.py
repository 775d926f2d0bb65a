"""Dropout (section 5.4)."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn


class Dropout(nn.Module):
    """In training, zeroes a share `rate` of all elements and scales the rest by 1 / (1 - rate)."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        """Any shape -> the same shape."""
        return F.dropout(x, self.rate, self.training)
