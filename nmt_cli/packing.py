"""Padded sentences as rows of real tokens, and back.

Only attention needs sentences; everything else computes the rows of a batch one by one. So padding costs nothing there,
and the numbers of rows are few, which matters because matrix products are prepared anew for each shape.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

MULTIPLE = 64
"""The number of rows is a multiple of this; rows of zeros fill it up."""


@dataclass(frozen=True)
class Packing:
    """The places of the real tokens of a batch.

    Args:
        places: [n] the place of each real token among all B * T.
        shape: B and T.
    """

    places: Tensor
    shape: tuple[int, int]

    @classmethod
    def of(cls, real: Tensor) -> Packing:
        """Return the packing of a batch in which `real` [B, T] is True for real tokens."""
        return cls(real.flatten().nonzero().squeeze(1), (real.size(0), real.size(1)))

    def pack(self, padded: Tensor) -> Tensor:
        """[B, T, width] -> [N, width]: the n real tokens, and zeros up to the next multiple of `MULTIPLE`."""
        rows: Tensor = _Pack.apply(padded.flatten(0, 1), self.places)  # type: ignore[no-untyped-call]
        return rows

    def unpack(self, rows: Tensor) -> Tensor:
        """[N, width] -> [B, T, width], with zeros for padding."""
        B, T = self.shape
        padded: Tensor = _Unpack.apply(rows, self.places, B * T)  # type: ignore[no-untyped-call]
        return padded.view(B, T, -1)


class _Pack(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, padded: Tensor, places: Tensor) -> Tensor:
        ctx.save_for_backward(places)
        ctx.places = len(padded)
        return _packed(padded, places)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return _unpacked(gradients[0], ctx.saved_tensors[0], ctx.places), None


class _Unpack(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, places: Tensor, count: int) -> Tensor:
        ctx.save_for_backward(places)
        return _unpacked(rows, places, count)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return _packed(gradients[0], ctx.saved_tensors[0]), None, None


def _packed(padded: Tensor, places: Tensor) -> Tensor:
    rows = padded.new_empty(-(-len(places) // MULTIPLE) * MULTIPLE, padded.size(1))
    torch.index_select(padded, 0, places, out=rows[: len(places)])
    rows[len(places) :] = 0
    return rows


def _unpacked(rows: Tensor, places: Tensor, count: int) -> Tensor:
    return rows.new_zeros(count, rows.size(1)).index_copy_(0, places, rows[: len(places)])
