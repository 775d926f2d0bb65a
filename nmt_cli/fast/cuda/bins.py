"""Whole sentence pairs in bins of equal width: a GPU's batches, with little padding and few shapes.

The source and the target of a pair are in the same bin. So a block of attention has one bin of each
side.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nmt_cli.fast.packing import Bins, RowBatch
from nmt_cli.interfaces import BOS, EOS, PAD

if TYPE_CHECKING:
    from nmt_cli.interfaces import Ragged

WIDTH = 128  # tokens of a bin on each side, or a multiple of it if a sentence is longer


def binned(sources: Ragged, targets: Ragged) -> RowBatch:
    """Return sentence pairs as a batch of bins."""
    lengths = np.stack([sources[1], targets[1]]) + 1  # [2, sentences], with EOS
    width = -(-int(lengths.max()) // WIDTH) * WIDTH
    starts = first_fit(lengths, width)
    bins = int(starts.max()) // width + 1
    # Rounded up, by a sixteenth at most: for each shape, a GPU's launches are recorded anew.
    multiple = 1 << max(0, bins.bit_length() - 5)
    shape = (-(-bins // multiple) * multiple, width)
    source, in_source = _filled(sources, starts[0], shape)
    target, in_target = _filled(targets, starts[1], shape)
    target_in = target.flatten().roll(1)
    target_in[torch.from_numpy(starts[1])] = BOS
    target_in = target_in.view(shape) * (in_target.sentences > 0)
    return RowBatch(source, target_in, target, int(lengths[1].sum()), in_source, in_target)


def first_fit(lengths: NDArray[Any], width: int) -> NDArray[np.int64]:
    """Return the places of the first tokens of sources and targets, as `lengths` [2, sentences].

    The longest first, each pair goes to the first bin with room for both.
    """
    most = 2 * int(lengths.max(0).sum()) // width + 1  # no two bins would fit into one
    source_room = np.full(most, width)
    target_room = np.full(most, width)
    starts = np.empty(lengths.shape, np.int64)
    order = np.lexsort((lengths.min(0), lengths.max(0)))[::-1]
    for pair, source, target in zip(order.tolist(), *lengths[:, order].tolist(), strict=True):
        chosen = ((source_room >= source) & (target_room >= target)).argmax()
        starts[0, pair] = (chosen + 1) * width - source_room[chosen]
        starts[1, pair] = (chosen + 1) * width - target_room[chosen]
        source_room[chosen] -= source
        target_room[chosen] -= target
    return starts


def _filled(sentences: Ragged, starts: NDArray[Any], shape: tuple[int, int]) -> tuple[Tensor, Bins]:
    """Return one side of a batch, ids with EOS, and its bins.

    Args:
        starts: the places of the first tokens.
    """
    ids, lengths = sentences
    ids = np.insert(ids, lengths.cumsum(), EOS)
    lengths = lengths + 1
    first_tokens = lengths.cumsum() - lengths
    position = np.arange(len(ids)) - np.repeat(first_tokens, lengths)
    place = np.repeat(starts, lengths) + position
    bins, width = shape
    filled = np.full((3, bins * width), PAD, np.int64)
    filled[0, place] = ids
    filled[1, place] = np.repeat(np.arange(1, len(lengths) + 1), lengths)
    filled[2, place] = position
    rows, numbers, positions = torch.from_numpy(filled)
    return rows.view(shape), Bins(numbers.view(shape), positions)
