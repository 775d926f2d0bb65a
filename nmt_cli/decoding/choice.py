"""Tokens chosen from a large vocabulary, the best ones or at random: first blocks of columns, then
columns.

Letters: N rows of scores or probabilities, V vocabulary, M draws.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

BLOCK = 64  # columns in a block; about the square root of V / k for usual vocabularies


def topk(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the values [N, k] and columns [N, k] of the best entries of each row of `scores` [N,
    V], best first.

    It is exact, and faster than `torch.topk` on a large vocabulary. The order of equal values
    depends on their row alone. If V is smaller than `k`, all entries are returned.
    """
    N, V = scores.shape
    k = min(k, V)
    if 2 * k * BLOCK >= V:
        return torch.topk(scores, k, dim=1)
    # The k best entries are in the k blocks with the greatest maxima, or after the last whole
    # block.
    number = V // BLOCK
    # [N, k]
    chosen = scores[:, : number * BLOCK].view(N, number, BLOCK).amax(dim=2).topk(k, dim=1).indices
    columns = (chosen[:, :, None] * BLOCK + torch.arange(BLOCK, device=scores.device)).flatten(1)
    if number * BLOCK < V:
        rest = torch.arange(number * BLOCK, V, device=scores.device).expand(N, -1)
        columns = torch.cat([columns, rest], dim=1)
    values, places = scores.gather(1, columns).topk(k, dim=1)
    return values, columns.gather(1, places)


def drawn(probabilities: Tensor, rows: Tensor, random: Tensor) -> Tensor:
    """Return a column for each of `rows` [M], drawn with two numbers `random` [M, 2] of [0, 1).

    First a block of columns, then a column of the block. A rounding error changes a draw where a
    random number is next to a boundary of the cumulative distribution. Two short distributions have
    far fewer boundaries than one over the vocabulary.

    Args:
        probabilities: [N, C] of the columns of each row. They need not sum to 1.
    """
    spare = -probabilities.shape[1] % BLOCK
    # [N, C / BLOCK, BLOCK]
    blocks = F.pad(probabilities, (0, spare)).view(len(probabilities), -1, BLOCK)
    block = _inverted(blocks.sum(dim=2)[rows], random[:, 0])
    place = block * BLOCK + _inverted(blocks[rows, block], random[:, 1])
    # In the padding if no token is possible: all are NaN.
    return place.clamp(max=probabilities.shape[1] - 1)


def _inverted(weights: Tensor, random: Tensor) -> Tensor:
    """The column [N] where the cumulative distribution of `weights` [N, C] passes `random` [N]."""
    cumulative = weights.double().cumsum(dim=1)
    total = cumulative[:, -1]
    # Below the total, if rounded.
    point = torch.minimum(random * total, total.nextafter(torch.zeros_like(total)))
    place = torch.searchsorted(cumulative, point.unsqueeze(1), right=True)
    return place.squeeze(1).clamp(max=weights.shape[1] - 1)
