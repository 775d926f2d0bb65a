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
TRIED = 32  # ways to fill a bin, of which the best one is taken


def binned(sources: Ragged, targets: Ragged) -> RowBatch:
    """Return sentence pairs as a batch of bins."""
    lengths = np.stack([sources[1], targets[1]]) + 1  # [2, sentences], with EOS
    width = -(-int(lengths.max()) // WIDTH) * WIDTH
    starts = packed(lengths, width)
    bins = int(starts.max()) // width + 1
    # Rounded up, by a thirty-second at most: for each shape, a GPU's launches are recorded anew.
    multiple = 1 << max(0, bins.bit_length() - 6)
    shape = (-(-bins // multiple) * multiple, width)
    source, in_source = _filled(sources, starts[0], shape)
    target, in_target = _filled(targets, starts[1], shape)
    target_in = target.flatten().roll(1)
    target_in[torch.from_numpy(starts[1])] = BOS
    target_in = target_in.view(shape) * (in_target.sentences > 0)
    return RowBatch(source, target_in, target, int(lengths[1].sum()), in_source, in_target)


def packed(lengths: NDArray[Any], width: int) -> NDArray[np.int64]:
    """Return the places of the first tokens of sources and targets, as `lengths` [2, sentences].

    Pairs with the same two lengths are of one kind. All bins that can have the kinds of the first
    one have them, then the next bin is filled.
    """
    numbers = lengths.sum(0) * (width + 1) + lengths[0]  # one for each kind, the shortest first
    kinds, kind_of_pair, counts = np.unique(numbers, return_inverse=True, return_counts=True)
    both, sources = np.divmod(kinds, width + 1)
    sizes = list(zip(sources.tolist(), (both - sources).tolist(), strict=True))
    left = counts.tolist()
    places = []  # of each pair: its kind, and where its source and its target start
    bins = 0
    while any(left):
        chosen = _fullest(sizes, left, width)
        alike = min(left[kind] // chosen.count(kind) for kind in set(chosen))
        for number in range(bins, bins + alike):
            source_start = target_start = number * width
            for kind in chosen:
                places.append((kind, source_start, target_start))
                left[kind] -= 1
                source_start += sizes[kind][0]
                target_start += sizes[kind][1]
        bins += alike
    starts = np.empty(lengths.shape, np.int64)
    starts[:, kind_of_pair.argsort(kind="stable")] = np.array(sorted(places)).T[1:]
    return starts


def _fullest(sizes: list[tuple[int, int]], counts: list[int], width: int) -> list[int]:
    """Return kinds of pairs that fill a bin, the longest one that is left among them.

    Of the first bins of a depth-first search, in which longer pairs come first, it is the fullest.

    Args:
        sizes: of a pair of each kind, source and target.
        counts: pairs that are left of each kind.
    """
    left = list(counts)
    chosen: list[int] = []
    fullest: list[int] = []
    least_room = 2 * width
    source_room = target_room = width
    longest = len(sizes) - 1  # that may follow
    tried = 0
    while tried < TRIED:
        for kind in range(longest, -1, -1):
            source, target = sizes[kind]
            if left[kind] and source <= source_room and target <= target_room:
                chosen.append(kind)
                left[kind] -= 1
                source_room -= source
                target_room -= target
                longest = kind
                is_new = True
                break
        else:  # no pair fits
            if is_new:
                tried += 1
                if source_room + target_room < least_room:
                    least_room = source_room + target_room
                    fullest = list(chosen)
            if len(chosen) == 1:
                break
            is_new = False
            kind = chosen.pop()
            left[kind] += 1
            source_room += sizes[kind][0]
            target_room += sizes[kind][1]
            longest = kind - 1
    return fullest


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
