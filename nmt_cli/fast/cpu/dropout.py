"""Dropout on a CPU by a mask of 16 random bits for each element: 10 times as fast as PyTorch's."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from nmt_cli.layers.dropout import Dropout

_LEVELS = 1 << 15
_BITS = {2: torch.int16, 4: torch.int32, 8: torch.int64}


def dropout_by_bits(self: Dropout, x: Tensor) -> Tensor:
    """See `Dropout`."""
    if not self.training or self.rate == 0.0:
        return x
    result: Tensor = _DropoutByBits.apply(x, self.rate)  # type: ignore[no-untyped-call]
    return result


class _DropoutByBits(torch.autograd.Function):
    """Dropout by a bit mask, at a rate rounded to a multiple of 2^-15."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, rate: float) -> Tensor:
        ctx.scale = 1.0 / (1.0 - rate)
        mask = _mask(x.numel(), rate).view(x.shape).to(_BITS[x.element_size()])
        ctx.save_for_backward(mask)
        return _masked(x, mask, ctx.scale)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (mask,) = ctx.saved_tensors
        return _masked(gradients[0], mask, ctx.scale), None


def _masked(x: Tensor, mask: Tensor, scale: float) -> Tensor:
    """`x` times `scale` where all bits of `mask` are set, and 0 where none is."""
    return (x.view(mask.dtype) & mask).view(x.dtype).mul_(scale)


def _mask(count: int, rate: float) -> Tensor:
    """[count] int16, all bits set with probability 1 - `rate`, and none otherwise.

    NumPy's SFC64 is twice as fast as PyTorch's generator, which seeds it. A 64-bit word serves four
    elements.
    """
    seed = int(torch.empty((), dtype=torch.int64).random_())
    words = np.random.SFC64(seed).random_raw(count // 4 + 1)
    random = torch.from_numpy(words).view(torch.int16)[:count].bitwise_and_(_LEVELS - 1)
    threshold = round((1.0 - rate) * _LEVELS)
    # A number below the threshold becomes negative, and the shift copies its sign to all bits.
    return random.sub_(threshold).bitwise_right_shift_(15)
