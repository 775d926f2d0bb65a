"""Where the tokens of a batch are: padded sentences as rows of real tokens, and back, or bins of
whole sentences.

Only attention needs sentences; everything else computes the rows of a batch one by one. So padding
costs nothing there, and the numbers of rows are few, which matters because code is prepared anew
for each shape.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import TypeAlias, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from nmt_cli.interfaces import Batch
from nmt_cli.layers.moves import moved

Structure = TypeVar("Structure")

# The number of rows is a multiple of this; the rows after the real tokens, the filler, mean
# nothing.
MULTIPLE = 64


@dataclass(frozen=True)
class Packing:
    """Where the n real tokens of a batch [B, T] are: among its places, and as N rows."""

    places: Tensor  # [n] the place of each real token among all B * T
    positions: Tensor  # [N] the position of each row in its sentence, and 0 in the filler
    shape: tuple[int, int]  # B and T

    @classmethod
    def of(cls, real: Tensor, multiple: int = MULTIPLE) -> Packing:
        """Return the packing of a batch in which `real` [B, T] is True for real tokens. On a GPU,
        the host waits.

        The number of rows is a multiple of `multiple`.
        """
        places = real.flatten().nonzero().squeeze(1)
        rows = -(-len(places) // multiple) * multiple
        return cls(places, _filled(places % real.size(1), rows), (real.size(0), real.size(1)))

    @property
    def full(self) -> bool:
        """Whether there is neither padding nor filler, as in a single sentence: rows and places are
        the same.
        """
        return len(self.places) == len(self.positions) == self.shape[0] * self.shape[1]

    def ids(self, padded: Tensor) -> Tensor:
        """[B, T] -> [N]: the ids of the rows, PAD in the filler."""
        return _filled(padded.flatten()[self.places], len(self.positions))

    def padding(self) -> Tensor:
        """[B, T], True where there is no token."""
        B, T = self.shape
        return (
            torch.ones(B * T, dtype=torch.bool, device=self.places.device)
            .index_fill(0, self.places, 0)
            .view(B, T)
        )

    def pack(self, padded: Tensor) -> Tensor:
        """[B, T, ...] -> [N, ...], with zeros as filler."""
        N, shape = len(self.positions), padded.shape[2:]
        if self.full:
            return padded.flatten(0, 1)
        values = padded.flatten(0, 1).flatten(1)
        if torch.compiler.is_compiling():  # PyTorch 2.11 loses the gradient of a compiled `_Move`
            rows = F.pad(values[self.places], (0, 0, 0, N - len(self.places)))
        else:
            rows = moved(
                values,
                partial(_packed, self.places, N),
                partial(_unpacked, self.places, len(values)),
            )
        return rows.view(N, *shape)

    def unpack(self, rows: Tensor) -> Tensor:
        """[N, ...] -> [B, T, ...], with zeros for padding."""
        B, T = self.shape
        if self.full:
            return rows.view(B, T, *rows.shape[1:])
        values = rows.flatten(1)
        if torch.compiler.is_compiling():
            zeros = values.new_zeros(B * T, values.size(1))
            padded = zeros.index_copy(0, self.places, values[: len(self.places)])
        else:
            padded = moved(
                values,
                partial(_unpacked, self.places, B * T),
                partial(_packed, self.places, len(values)),
            )
        return padded.view(B, T, *rows.shape[1:])


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
    targets: Rows  # those of target_in and target_out

    def map_tensors(self, change: Callable[[Tensor], Tensor]) -> RowBatch:
        """See `Batch`."""
        return map_tensors(self, change)


def map_tensors(structure: Structure, change: Callable[[Tensor], Tensor]) -> Structure:
    """Return a dataclass with its tensors changed, also those of packings in it, or a tensor that
    is changed.
    """
    if isinstance(structure, Tensor):
        return change(structure)  # type: ignore[return-value]
    values = {field.name: getattr(structure, field.name) for field in fields(structure)}  # type: ignore[arg-type]
    tensors = {name: change(value) for name, value in values.items() if isinstance(value, Tensor)}
    packings = {
        name: map_tensors(value, change)
        for name, value in values.items()
        if isinstance(value, (Packing, Bins))
    }
    return replace(structure, **tensors, **packings)  # type: ignore[type-var]


def _packed(places: Tensor, count: int, padded: Tensor) -> Tensor:
    rows = padded.new_empty(count, padded.size(1))
    torch.index_select(padded, 0, places, out=rows[: len(places)])
    rows[len(places) :] = 0
    return rows


def _unpacked(places: Tensor, count: int, rows: Tensor) -> Tensor:
    return rows.new_zeros(count, rows.size(1)).index_copy_(0, places, rows[: len(places)])


def _filled(values: Tensor, rows: int) -> Tensor:
    return F.pad(values, (0, rows - len(values)))
