"""Rows of tokens: padded sentences without their padding, or bins of whole sentences.

Only attention needs sentences. Everything else computes the rows of a batch one by one, so padding
costs nothing there. The numbers of rows are few, which matters because code is prepared anew for
each shape.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import TypeAlias, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from nmt_cli.interfaces import Batch
from nmt_cli.layers.moves import moved

Structure = TypeVar("Structure")

MULTIPLE = 64
"""The number of rows is a multiple of this. The rows after the real tokens are the filler."""


@dataclass(frozen=True)
class Packing:
    """Where the n real tokens of a batch [B, T] are: among its places, and as N rows."""

    places: Tensor  # [n] the place of each real token among all B * T
    padding_places: Tensor  # [B * T - n] the others
    rows: Tensor  # [B * T] the row of each place, and any row for padding
    positions: Tensor  # [N] the position of each row in its sentence, and 0 in the filler
    shape: tuple[int, int]  # B and T

    @classmethod
    def of(cls, real: Tensor, multiple: int = MULTIPLE) -> Packing:
        """Return the packing of a batch in which `real` [B, T] is True for real tokens.

        The number of rows is a multiple of `multiple`. On a GPU, the host waits.
        """
        B, T = real.shape
        real = real.flatten()
        places = real.nonzero().squeeze(1)  # [n]
        padding_places = (~real).nonzero().squeeze(1)
        rows = (real.cumsum(0) - 1).clamp(min=0)
        N = -(-len(places) // multiple) * multiple
        return cls(places, padding_places, rows, _with_filler(places % T, N), (B, T))

    @property
    def full(self) -> bool:
        """Whether there is neither padding nor filler, so that rows and places are the same."""
        return len(self.places) == len(self.positions) == self.shape[0] * self.shape[1]

    def ids(self, padded: Tensor) -> Tensor:
        """[B, T] -> [N]: the ids of the rows, PAD in the filler."""
        return _with_filler(padded.flatten()[self.places], len(self.positions))

    def padding(self) -> Tensor:
        """[B, T], True where there is no token."""
        B, T = self.shape
        padding = torch.zeros(B * T, dtype=torch.bool, device=self.places.device)
        return padding.index_fill(0, self.padding_places, 1).view(B, T)

    def pack(self, padded: Tensor) -> Tensor:
        """[B, T, ...] -> [N, ...], with zeros as filler."""
        if self.full:
            return padded.flatten(0, 1)
        N = len(self.positions)
        values = padded.flatten(0, 1).flatten(1)  # [B * T, width]
        if torch.compiler.is_compiling():  # PyTorch 2.11 loses the gradient of a compiled `moved`
            rows = F.pad(values[self.places], (0, 0, 0, N - len(self.places)))
        else:
            rows = moved(values, self._to_rows, self._to_places)
        return rows.view(N, *padded.shape[2:])

    def unpack(self, rows: Tensor) -> Tensor:
        """[N, ...] -> [B, T, ...], with zeros for padding."""
        B, T = self.shape
        if self.full:
            return rows.view(B, T, *rows.shape[1:])
        values = rows.flatten(1)  # [N, width]
        if torch.compiler.is_compiling():  # as in `pack`
            zeros = values.new_zeros(B * T, values.size(1))
            padded = zeros.index_copy(0, self.places, values[: len(self.places)])
        else:
            padded = moved(values, self._to_places, self._to_rows)
        return padded.view(B, T, *rows.shape[1:])

    def _to_rows(self, padded: Tensor) -> Tensor:
        """[B * T, width] -> [N, width], with zeros as filler."""
        count = len(self.places)
        rows = padded.new_empty(len(self.positions), padded.size(1))
        torch.index_select(padded, 0, self.places, out=rows[:count])
        rows[count:] = 0
        return rows

    def _to_places(self, rows: Tensor) -> Tensor:
        """[N, width] -> [B * T, width], with zeros for padding."""
        # On a CPU, copies from an index are five times as fast as copies to one.
        padded = rows.index_select(0, self.rows)
        return padded.index_fill_(0, self.padding_places, 0)


@dataclass(frozen=True)
class Bins:
    """Which sentences share a row of a batch [B, W], in which every place is computed.

    Only the contents of the tensors depend on the sentences, not their shapes.
    """

    sentences: Tensor  # [B, W] the number of each token's sentence, from 1 on, and 0 in the filler
    positions: Tensor  # [B * W] the position of each token in its sentence, and 0 in the filler

    def ids(self, bins: Tensor) -> Tensor:
        """[B, W] -> [B * W]: the ids of the rows. The filler is in the batch."""
        return bins.flatten()


Rows: TypeAlias = Packing | Bins


@dataclass(frozen=True)
class RowBatch(Batch):
    """A batch that says where its real tokens are."""

    sources: Rows
    targets: Rows  # of target_in and target_out

    def map_tensors(self, change: Callable[[Tensor], Tensor]) -> RowBatch:
        """See `Batch`."""
        return map_tensors(self, change)


def map_tensors(structure: Structure, change: Callable[[Tensor], Tensor]) -> Structure:
    """Return a tensor changed, or a dataclass with its tensors changed, and in packings in it."""
    if isinstance(structure, Tensor):
        return change(structure)  # type: ignore[return-value]
    changed = {}
    for field in fields(structure):  # type: ignore[arg-type]
        value = getattr(structure, field.name)
        if isinstance(value, (Tensor, Packing, Bins)):
            changed[field.name] = map_tensors(value, change)
    return replace(structure, **changed)  # type: ignore[type-var]


def _with_filler(values: Tensor, rows: int) -> Tensor:
    return F.pad(values, (0, rows - len(values)))
