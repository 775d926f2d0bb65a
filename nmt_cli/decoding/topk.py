"""A deterministic top-k: higher values first, equal values by lower index.

`torch.topk` does not define which of several equal values it returns, and is slower on a large vocabulary than taking
the maxima of blocks first.
"""

from __future__ import annotations

import torch
from torch import Tensor

BLOCK = 64
"""Columns in a block; about the square root of V / k for usual vocabularies."""


def topk(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the values [N, k] and columns [N, k] of the best entries of each row of `scores` [N, V], best first.

    `scores` are float32; if V is smaller than `k`, all entries are returned.
    """
    width = scores.shape[1]
    k = min(k, width)
    columns = _first_best(scores, k) if width <= 2 * k * BLOCK else _best_by_blocks(scores, k)
    return scores.gather(1, columns), columns


def _best_by_blocks(scores: Tensor, k: int) -> Tensor:
    """The columns [N, k] of the best entries, which are in the k blocks with the greatest maxima.

    For an entry outside of these, each of the k blocks has one that precedes it: greater, or equal with a lower index.
    The columns after the last whole block are always searched.
    """
    whole = scores.shape[1] // BLOCK * BLOCK
    blocks = scores[:, :whole].view(len(scores), -1, BLOCK)  # [N, V / BLOCK, BLOCK]
    # In ascending order, so that a lower position among the chosen columns is a lower index.
    chosen = _first_best(blocks.amax(dim=2), k).sort(dim=1).values  # [N, k]
    columns = (chosen.unsqueeze(2) * BLOCK + torch.arange(BLOCK, device=scores.device)).flatten(1)
    rest = torch.arange(whole, scores.shape[1], device=scores.device).expand(len(scores), -1)
    columns = torch.cat([columns, rest], dim=1)  # [N, k * BLOCK + V % BLOCK]
    return columns.gather(1, _first_best(scores.gather(1, columns), k))


def _first_best(scores: Tensor, k: int) -> Tensor:
    """The columns [N, k] of the best entries, equal values by lower index.

    The bits of a float32, read as an integer, sort like the float once those of negative numbers are flipped. The index
    is the lower half of a 64-bit key, so no two keys are equal.
    """
    last = scores.shape[1] - 1
    bits = (scores + 0.0).view(torch.int32)  # + 0.0 makes -0.0 equal to 0.0
    ordered = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    keys = (ordered.long() << 32) + torch.arange(last, -1, -1, device=scores.device)
    return last - (keys.topk(k, dim=1).values & 0xFFFFFFFF)
