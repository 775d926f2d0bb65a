"""Dropout (section 5.4). On a CPU, drawing 16 random bits per element is several times faster than PyTorch's."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

_LEVELS = 1 << 16


class Dropout(nn.Module):
    """Dropout: zeroes each element with probability `rate` while training, and scales the rest by 1 / (1 - rate)."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        """Any shape -> the same shape."""
        if not self.training or self.rate == 0.0:
            return x
        if x.device.type == "cpu":
            return _dropout_on_cpu(x, self.rate)
        return F.dropout(x, self.rate)


def _dropout_on_cpu(x: Tensor, rate: float) -> Tensor:
    """Dropout at a rate rounded to a multiple of 2^-16. A 64-bit random word serves four elements."""
    count = x.numel()
    words = torch.empty((count + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
    threshold = round(rate * _LEVELS) - _LEVELS // 2
    kept = words.view(torch.int16)[:count].view(x.shape) >= threshold
    return x * kept.to(x.dtype).mul_(1.0 / (1.0 - rate))
