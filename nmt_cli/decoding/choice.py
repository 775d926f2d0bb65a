"""Tokens chosen from a large vocabulary, the best ones or at random.

Blocks of columns are chosen first, and then columns, which is faster than one choice of them all.

Letters: N rows of scores or probabilities, C columns, V vocabulary, M draws.
"""

from __future__ import annotations

import torch
from torch import Tensor

BLOCK = 64  # columns in a block, about the square root of V / k for usual vocabularies


def topk(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the values and columns [N, k] of the best entries of each row of `scores` [N, V].

    The best is first. The result is exact, and faster than `torch.topk` on a large vocabulary. The
    order of equal values depends on their row alone. If V is smaller than `k`, all entries are
    returned.
    """
    N, V = scores.shape
    k = min(k, V)
    if 2 * k * BLOCK >= V:
        return torch.topk(scores, k, dim=1)
    # The k best entries are in the k blocks with the greatest maxima, or after the whole blocks.
    whole = V - V % BLOCK  # columns in whole blocks
    maxima = scores[:, :whole].view(N, V // BLOCK, BLOCK).amax(dim=2)  # [N, V // BLOCK]
    blocks = maxima.topk(k, dim=1).indices  # [N, k]
    in_block = torch.arange(BLOCK, device=scores.device)
    columns = (blocks[:, :, None] * BLOCK + in_block).flatten(1)  # [N, k * BLOCK]
    if whole < V:
        rest = torch.arange(whole, V, device=scores.device).expand(N, -1)
        columns = torch.cat([columns, rest], dim=1)
    values, places = scores.gather(1, columns).topk(k, dim=1)
    return values, columns.gather(1, places)


def drawn(probabilities: Tensor, rows: Tensor, random: Tensor) -> Tensor:
    """Return a column for each of `rows` [M], drawn with two numbers `random` [M, 2] of [0, 1).

    First a block of columns, then a column of the block. A rounding error changes a draw where a
    random number is next to a boundary of the cumulative distribution. Two short distributions have
    far fewer boundaries than one over the vocabulary.

    Args:
        probabilities: [N, C], which need not sum to 1.
    """
    N, C = probabilities.shape
    whole = C - C % BLOCK  # columns in whole blocks
    sums = probabilities[:, :whole].view(N, whole // BLOCK, BLOCK).sum(dim=2)
    if whole < C:
        rest = probabilities[:, whole:].sum(dim=1, keepdim=True)
        sums = torch.cat([sums, rest], dim=1)  # [N, C / BLOCK]
    block = _inverted(sums[rows], random[:, 0])  # [M]
    columns = block[:, None] * BLOCK + torch.arange(BLOCK, device=block.device)  # [M, BLOCK]
    weights = probabilities[rows[:, None], columns.clamp(max=C - 1)]
    column = _inverted(weights.masked_fill(columns >= C, 0.0), random[:, 1])
    # If no token is possible, all probabilities are NaN, and the column is after the last one.
    return (block * BLOCK + column).clamp(max=C - 1)


def _inverted(weights: Tensor, random: Tensor) -> Tensor:
    """The column [M] where the cumulative distribution of `weights` [M, C] passes `random` [M]."""
    cumulative = weights.double().cumsum(dim=1)
    total = cumulative[:, -1]
    below_total = total.nextafter(torch.zeros_like(total))
    point = torch.minimum(random * total, below_total)  # the product may be rounded up
    column = torch.searchsorted(cumulative, point.unsqueeze(1), right=True)
    return column.squeeze(1).clamp(max=weights.shape[1] - 1)
