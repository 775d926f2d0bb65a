"""Where the tokens of a batch are: padded sentences as rows of real tokens, and back, or bins of whole sentences.

Only attention needs sentences; everything else computes the rows of a batch one by one. So padding costs nothing there,
and the numbers of rows are few, which matters because code is prepared anew for each shape.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, TypeAlias, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

Structure = TypeVar("Structure")

MULTIPLE = 64  # the number of rows is a multiple of this; the rows after the real tokens, the filler, mean nothing


@dataclass(frozen=True)
class Packing:
    """Where the n real tokens of a batch [B, T] are: among its places, and as N rows."""

    places: Tensor  # [n] the place of each real token among all B * T
    holes: Tensor  # [B * T - n] the places of padding
    numbers: Tensor  # [B * T] the row of each place, and of padding any row
    positions: Tensor  # [N] the position of each row in its sentence, and 0 in the filler
    shape: tuple[int, int]  # B and T

    @classmethod
    def of(cls, real: Tensor, multiple: int | None = None) -> Packing:
        """Return the packing of a batch in which `real` [B, T] is True for real tokens. On a GPU, the host waits.

        The number of rows is a multiple of `multiple`, by default `MULTIPLE`.
        """
        real, (B, T) = real.flatten(), real.shape
        places, holes = (each.nonzero().squeeze(1) for each in (real, ~real))
        positions = _filled(places % T, _rounded(len(places), multiple or MULTIPLE))
        return cls(places, holes, (real.cumsum(0) - 1).clamp(min=0), positions, (B, T))

    @property
    def full(self) -> bool:
        """Whether there is neither padding nor filler, as in a single sentence: rows and places are the same."""
        return len(self.places) == len(self.positions) == self.shape[0] * self.shape[1]

    def ids(self, padded: Tensor, filler: int) -> Tensor:
        """[B, T] -> [N]: the ids of the rows."""
        return _filled(padded.flatten()[self.places], len(self.positions), filler)

    def padding(self) -> Tensor:
        """[B, T], True where there is no token."""
        B, T = self.shape
        return torch.zeros(B * T, dtype=torch.bool, device=self.holes.device).index_fill(0, self.holes, 1).view(B, T)

    def pack(self, padded: Tensor) -> Tensor:
        """[B, T, ...] -> [N, ...], with zeros as filler."""
        N, shape = len(self.positions), padded.shape[2:]
        if self.full:
            return padded.flatten(0, 1)
        index = self.places, self.holes, self.numbers
        rows: Tensor = _Move.apply(padded.flatten(0, 1).flatten(1), N, _packed, _unpacked, *index)  # type: ignore[no-untyped-call]
        return rows.view(N, *shape)

    def unpack(self, rows: Tensor) -> Tensor:
        """[N, ...] -> [B, T, ...], with zeros for padding."""
        B, T = self.shape
        if self.full:
            return rows.view(B, T, *rows.shape[1:])
        index = self.places, self.holes, self.numbers
        padded: Tensor = _Move.apply(rows.flatten(1), B * T, _unpacked, _packed, *index)  # type: ignore[no-untyped-call]
        return padded.view(B, T, *rows.shape[1:])


@dataclass(frozen=True)
class Bins:
    """Which sentences share a row of a batch [B, W], in which every place is computed.

    Only the contents of the tensors depend on the sentences, not their shapes.
    """

    sentences: Tensor  # [B, W] the number of each token's sentence, from 1 on, and 0 in the filler
    positions: Tensor  # [B * W] the position of each token in its sentence, and 0 in the filler

    def ids(self, bins: Tensor, filler: int) -> Tensor:
        """[B, W] -> [B * W]: the ids of the rows. The filler is in the batch."""
        return bins.flatten()


Rows: TypeAlias = Packing | Bins


def mapped(structure: Structure, change: Callable[[Tensor], Tensor]) -> Structure:
    """Return a dataclass with its tensors changed, also those of packings in it, or a tensor that is changed."""
    if isinstance(structure, Tensor):
        return change(structure)  # type: ignore[return-value]
    values = {field.name: getattr(structure, field.name) for field in fields(structure)}  # type: ignore[arg-type]
    tensors = {name: change(value) for name, value in values.items() if isinstance(value, Tensor)}
    packings = {name: mapped(value, change) for name, value in values.items() if isinstance(value, (Packing, Bins))}
    return replace(structure, **tensors, **packings)  # type: ignore[type-var]


class _Move(torch.autograd.Function):
    """Packing or unpacking, whichever `move` does; the gradient of each is moved by the other, `back`."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, count: int, move: Any, back: Any, *index: Tensor) -> Tensor:
        ctx.save_for_backward(*index)
        ctx.count, ctx.back = len(values), back
        moved: Tensor = move(values, count, *index)
        return moved

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        return ctx.back(gradients[0], ctx.count, *ctx.saved_tensors), *(6 * [None])


def _packed(padded: Tensor, count: int, places: Tensor, holes: Tensor, numbers: Tensor) -> Tensor:
    rows = padded.new_empty(count, padded.size(1))
    torch.index_select(padded, 0, places, out=rows[: len(places)])
    rows[len(places) :] = 0
    return rows


def _unpacked(rows: Tensor, count: int, places: Tensor, holes: Tensor, numbers: Tensor) -> Tensor:
    # On a CPU, twice as fast as `index_copy_` into zeros.
    return rows.index_select(0, numbers).index_fill_(0, holes, 0)


def _rounded(tokens: int, multiple: int) -> int:
    return -(-tokens // multiple) * multiple


def _filled(values: Tensor, rows: int, filler: int = 0) -> Tensor:
    return F.pad(values, (0, rows - len(values)), value=filler)
