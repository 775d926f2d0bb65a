"""The state of a decoder whose tensors keep their shapes and addresses.

Letters are as in `inference.py`, where A counts the places of sentences.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from nmt_cli.decoding.options import SearchSettings
from nmt_cli.fast.cuda.checks import kernels_of_step
from nmt_cli.fast.inference import CachedPast, FrozenTransformer, Step, TransformerState
from nmt_cli.layers.attention import Layout

COLUMNS = 32  # source columns, and positions that a step sees, are multiples of this
POSITIONS = 64  # the target positions of a search are multiples of this


@dataclass(frozen=True)
class Shape:
    """What must be equal for two searches to use the same tensors."""

    options: SearchSettings
    places: int
    columns: int  # of the source
    positions: int  # of the target, at most


@dataclass(kw_only=True)
class FixedState(TransformerState):
    """The state of a `FixedSearch`. Tensors are changed in place."""

    source_mask: Tensor
    now: Tensor  # [A], target positions of each sentence, with that of the step
    encodings: Tensor  # [positions, d_model]
    kernels: Any  # that compute attention, `step_kernels` or None
    columns: int = 0  # that a step sees, as many for each position as a sentence has hypotheses

    @classmethod
    def of(cls, model: FrozenTransformer, shape: Shape, like: TransformerState) -> FixedState:
        """Return a state without sentences, whose caches are of the same types as `like`."""
        A, W = shape.places, shape.options.beam
        _, H, _, both = like.source[0].shape
        columns = shape.positions * W
        new = like.source[0].new_zeros
        key = (like.mask.device, like.mask.dtype)
        sizes = (W, model.d_k, both - model.d_k)
        return cls(
            source=[new(A, H, shape.columns, both) for _ in like.source],
            source_mask=new(A, 1, 1, shape.columns),
            # What is not seen must be finite, because a weight of 0 times NaN is NaN.
            target=[new(A, H, columns, both) for _ in like.source],
            mask=new(A, W, columns).fill_(-torch.inf),
            newest=new(W, W).fill_(-torch.inf).fill_diagonal_(0.0),
            now=torch.zeros(A, dtype=torch.long, device=like.mask.device),
            encodings=model.encodings(shape.positions),
            kernels=kernels_of_step(*key) and kernels_of_step(*key, *sizes),
        )

    def begin(self, places: Tensor, encoded: TransformerState, rows: slice) -> None:
        """Have these `rows` of what is `encoded` at `places` [n], without target positions."""
        assert encoded.source_mask is not None
        self.now[places] = 0
        self.hide(places)
        columns = encoded.source_mask.size(3)
        self.source_mask[..., :columns].index_copy_(0, places, encoded.source_mask[rows])
        for cache, source in zip(self.source, encoded.source, strict=True):
            cache[:, :, :columns].index_copy_(0, places, source[rows])

    def hide(self, places: Any) -> None:
        """Let nothing be seen at these places."""
        self.mask[places] = -torch.inf
        self.source_mask[places] = -torch.inf

    def tensors(self) -> list[Tensor]:
        """The tensors of each sentence: [A, ...]."""
        return [
            self.now,
            *self.source,
            self.source_mask,
            self.mask,
            *(cache[:, :, : self.columns] for cache in self.target),
        ]

    def select(self, rows: Tensor) -> FixedState:
        """See `DecoderState`."""
        self.mask.copy_(self.mask.flatten(0, 1)[rows.flatten()].view_as(self.mask))
        return self

    def extend(self, positions: Any) -> tuple[Tensor, Step]:
        """See `TransformerState`."""
        A, W, _ = self.mask.shape
        position = self.now - 1
        columns = position[:, None] * W + torch.arange(W, device=position.device)  # [A, W]
        newest = self.newest.expand(A, W, W)
        self.mask.scatter_(2, columns[:, None].expand_as(newest), newest)
        of_rows = position.repeat_interleave(W)
        seen = self.mask[:, :, : self.columns]
        return self.encodings[of_rows], Step(seen, position=of_rows[:, None], newest=columns)

    def to_source(self) -> Layout:
        """See `TransformerState`."""
        if self.kernels is None:
            return super().to_source()
        return self.kernels.ToSource(self.source_mask)

    def to_past(self, step: Step, cache: Tensor) -> Layout:
        """See `TransformerState`."""
        if self.kernels is None:
            return FixedPast(step, cache)
        return self.kernels.ToPast(step, cache)


class FixedPast(CachedPast):
    """The layout of self-attention in a step, if sentences differ in their lengths."""

    def write(self, newest: Tensor) -> None:
        """See `CachedPast`."""
        assert isinstance(self.step.newest, Tensor)
        columns = self.step.newest[:, None, :, None]  # [A, 1, W, 1]
        self.cache.scatter_(2, columns.expand_as(newest), newest)
