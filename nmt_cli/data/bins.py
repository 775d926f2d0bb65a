"""Whole sentence pairs in bins of equal width: the batches of a GPU, nearly without padding and of few shapes.

The source and the target of a pair are in the same bin. So a block of attention has one bin of each side.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nmt_cli.interfaces import BOS, EOS, PAD, Batch
from nmt_cli.packing import Bins

if TYPE_CHECKING:
    from nmt_cli.interfaces import Sentences

WIDTH = 128  # tokens of a bin on each side; a multiple of it if a sentence is longer


def binned(sources: Sentences, targets: Sentences) -> Batch:
    """Return sentence pairs, given as all ids, one sentence after the other, and lengths, as a batch of bins."""
    lengths = np.stack([sources[1], targets[1]]) + 1  # [2, sentences], with EOS
    width = width_of(lengths)
    bins = first_fit(lengths, width)
    count = rounded(int(bins.max()) + 1)
    order = np.argsort(bins, kind="stable")
    first = np.searchsorted(bins[order], bins[order])  # of each sentence, in this order: the first of its bin
    numbers = np.empty_like(order)
    numbers[order] = np.arange(len(order)) - first + 1
    starts = np.empty_like(lengths)
    before = lengths[:, order].cumsum(1) - lengths[:, order]
    starts[:, order] = bins[order] * width + before - before[:, first]
    source, of_source = _filled(sources, starts[0], numbers, count, width)
    target_out, of_target = _filled(targets, starts[1], numbers, count, width)
    target_in = target_out.roll(1) * (of_target.sentences.flatten() > 0)
    target_in[torch.from_numpy(starts[1])] = BOS
    source, target_in, target_out = (ids.view(count, width) for ids in (source, target_in, target_out))
    return Batch(source, target_in, target_out, int(lengths[1].sum()), of_source, of_target)


def width_of(lengths: NDArray[Any]) -> int:
    """Return the width of bins for sentences of these lengths."""
    return -(-int(lengths.max(initial=1)) // WIDTH) * WIDTH


def first_fit(lengths: NDArray[Any], width: int) -> NDArray[np.int64]:
    """Return the bin of each pair: the longest first, each goes to the first bin with room for its source and target.

    Args:
        lengths: [2, sentences].
    """
    room = np.full((2, lengths.shape[1]), width)
    bins = np.empty(lengths.shape[1], np.int64)
    for pair in np.lexsort((lengths.min(0), lengths.max(0)))[::-1].tolist():
        source, target = lengths[:, pair]
        bins[pair] = chosen = ((room[0] >= source) & (room[1] >= target)).argmax()
        room[:, chosen] -= source, target
    return bins


def rounded(bins: int) -> int:
    """Round a number of bins up, by a sixteenth at most: for each shape, a GPU's launches are recorded anew."""
    return bins + -bins % (1 << max(0, bins.bit_length() - 5))


def _filled(
    sentences: Sentences, starts: NDArray[Any], numbers: NDArray[Any], count: int, width: int
) -> tuple[Tensor, Bins]:
    """Return one side of a batch, [count * width] ids with EOS, and its bins.

    Args:
        starts: [sentences] the place of each one's first token.
        numbers: [sentences] of each in its bin, from 1 on.
    """
    ids, lengths = sentences
    rows, of, positions = np.full((3, count * width), PAD, np.int64)
    places = np.arange(len(ids)) + np.repeat(starts - lengths.cumsum() + lengths, lengths)
    rows[places], rows[starts + lengths] = ids, EOS
    with_end = lengths + 1
    places = np.arange(with_end.sum()) + np.repeat(starts - with_end.cumsum() + with_end, with_end)
    of[places], positions[places] = np.repeat(numbers, with_end), places - np.repeat(starts, with_end)
    packing = Bins(torch.from_numpy(of).view(count, width), torch.from_numpy(positions))
    return torch.from_numpy(rows), packing
