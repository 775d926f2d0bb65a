"""The best entries of each row, the same ones every time: higher values first, equal values by their lower index.

`torch.topk` leaves open which of several equal values it returns, and reads a vocabulary of tens of thousands of words
more slowly than the maxima of its blocks.
"""

from __future__ import annotations

import torch
from torch import Tensor

BLOCK = 64
"""Columns whose maximum is taken at once; about the square root of V / k for the vocabularies that are in use."""


def topk(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The `k` best entries of each row, best first.

    Args:
        scores: [N, V], float32.
        k: how many; all of them where V is smaller.

    Returns:
        values [N, k] and their column indices [N, k].
    """
    width = scores.shape[1]
    k = min(k, width)
    columns = _first_best(scores, k) if width <= 2 * k * BLOCK else _best_by_blocks(scores, k)
    return scores.gather(1, columns), columns


def _best_by_blocks(scores: Tensor, k: int) -> Tensor:
    """Column indices [N, k] of the best entries: each of them lies in one of the k blocks with the greatest maxima.

    Were an entry outside those blocks, each of the k blocks would hold one that precedes it: a greater one, or an equal
    one of a lower index. The columns left over by the last whole block are always looked at.
    """
    whole = scores.shape[1] // BLOCK * BLOCK
    blocks = scores[:, :whole].view(len(scores), -1, BLOCK)  # [N, V / BLOCK, BLOCK]
    # In ascending order again, so that a lower position among the chosen columns is a lower index.
    chosen = _first_best(blocks.amax(dim=2), k).sort(dim=1).values  # [N, k]
    columns = (chosen.unsqueeze(2) * BLOCK + torch.arange(BLOCK, device=scores.device)).flatten(1)
    rest = torch.arange(whole, scores.shape[1], device=scores.device).expand(len(scores), -1)
    columns = torch.cat([columns, rest], dim=1)  # [N, k * BLOCK + V % BLOCK]
    return columns.gather(1, _first_best(scores.gather(1, columns), k))


def _first_best(scores: Tensor, k: int) -> Tensor:
    """Column indices [N, k] of the best entries, equal values by lower index.

    A float32's bits, read as an integer, sort as the float does once the negative ones are turned round; the index
    fills the lower half of a 64-bit key, so no two keys are equal and the order is total.
    """
    last = scores.shape[1] - 1
    bits = (scores + 0.0).view(torch.int32)  # + 0.0 makes -0.0 equal to 0.0
    ordered = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    keys = (ordered.long() << 32) + torch.arange(last, -1, -1, device=scores.device)
    return last - (keys.topk(k, dim=1).values & 0xFFFFFFFF)
