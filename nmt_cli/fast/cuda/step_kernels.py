"""Kernels of a decoding step, in Triton: the best tokens of a row, and attention to caches.

Letters are as in `inference.py`. K is the number of tokens that are chosen.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from nmt_cli.fast.cuda import layers
from nmt_cli.fast.inference import CachedPast, CachedSource
from nmt_cli.layers.attention import Kernel

ROWS = tl.constexpr(layers.ROWS)
LOWEST = tl.constexpr(-3e38)  # finite, so that nothing is subtracted from itself to NaN


def best_tokens(logits: Tensor, k: int, forbidden: Tensor, allowed: int) -> tuple[Tensor, Tensor]:
    """Return the log-probabilities and the tokens [N, k] of the best in rows `logits` [N, V].

    The best is first. A token that is not there, as V is too small, has -inf.

    Args:
        forbidden: for each sentence [A], a bit for each token that is not chosen, of the first 31.
        allowed: the first token after those that may be chosen.
    """
    N, V = logits.shape
    scores = torch.empty(N, k, device=logits.device)
    tokens = torch.empty(N, k, dtype=torch.long, device=logits.device)
    slots = triton.next_power_of_2(k)
    block = min(2048, triton.next_power_of_2(V))
    W = N // len(forbidden)
    _best_tokens[(N,)](
        logits, scores, tokens, forbidden, V, W, k, allowed, slots, block, num_warps=4
    )
    return scores, tokens


@triton.jit
def _best_tokens(
    logits,
    scores,
    tokens,
    forbidden,
    V,
    W,
    k,
    allowed,
    SLOTS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """A row. Few blocks of columns have a better token than the best so far.

    Of equal ones, those of the first columns are chosen.
    """
    row = tl.program_id(0).to(tl.int64)
    slot = tl.arange(0, SLOTS)
    best = tl.where(slot < k, float("-inf"), float("inf"))  # in any order
    token = -slot  # different ones, all before the first column
    greatest = LOWEST
    total = tl.zeros([BLOCK], tl.float32)
    logits += row * V
    symbols = tl.load(forbidden + row // W).to(tl.int32)
    column = tl.arange(0, BLOCK)
    following = tl.load(logits + column, column < V, float("-inf"))
    for start in range(0, V, BLOCK):
        x = following.to(tl.float32)
        column = start + tl.arange(0, BLOCK)
        after = column + BLOCK
        following = tl.load(logits + after, after < V, float("-inf"))  # needed later
        before = greatest
        greatest = tl.maximum(before, tl.max(x, 0))
        total = total * tl.exp(before - greatest) + tl.exp(x - greatest)
        hidden = (symbols >> tl.minimum(column, 31)) & 1
        x = tl.where((hidden == 0) & (column < allowed), x, float("-inf"))
        candidate = tl.max(x, 0)
        worst = tl.min(best, 0)
        while candidate > worst:
            place = start + tl.argmax(x, 0)
            last = tl.max(tl.where(best == worst, token, -SLOTS), 0)
            leaves = (best == worst) & (token == last)
            best = tl.where(leaves, candidate, best)
            token = tl.where(leaves, place, token)
            x = tl.where(column == place, float("-inf"), x)
            candidate = tl.max(x, 0)
            worst = tl.min(best, 0)
    best = tl.where(slot < k, best, float("-inf"))
    log_total = tl.log(tl.sum(total, 0))
    for place in range(k):
        score = tl.max(best, 0)
        first = tl.min(tl.where(best == score, token, V), 0)
        tl.store(scores + row * k + place, score - greatest - log_total)
        tl.store(tokens + row * k + place, tl.maximum(first, 0).to(tl.int64))
        best = tl.where(token == first, float("-inf"), best)


class ToSource(CachedSource):
    """See `CachedSource`."""

    def attend(self, kernel: Kernel, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """See `Layout`."""
        assert self.mask is not None
        return attend(query, key, value, self.mask[:, 0])


class ToPast(CachedPast):
    """See `CachedPast`."""

    def attend(self, kernel: Kernel, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """See `Layout`."""
        position = self.step.position
        query, key = kernel.placed(query, position), kernel.placed(key, position)
        keys, values = self.cache.tensor_split((query.size(2),), 3)
        return attend(query, keys, values, self.step.columns, (key, value, position))


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor,
    newest: tuple[Tensor, Tensor, Tensor] | None = None,
) -> Tensor:
    """Equation 1 for keys in any order: [N, H, d_k] -> [N, H, d_v].

    Args:
        key, value: [A, H, at least C, d_k] and [A, H, at least C, d_v], of one tensor.
        mask: 0 and -inf, [A, W, C] or [A, 1, C].
        newest: keys [N, H, d_k] and values [N, H, d_v], first written to the columns from
            W * `position`, [N, 1].
    """
    N, H, d_k = query.shape
    A, W, C = len(key), N // len(key), mask.size(2)
    d_v = value.size(3)
    output = query.new_empty(N, H, d_v)
    query = query.flatten(1)
    new_key, new_value, position = newest or (query, query, query)
    new_key, new_value = new_key.flatten(1), new_value.flatten(1)
    _attend[(A * H,)](
        query,
        key,
        value,
        mask,
        new_key,
        new_value,
        position,
        output,
        d_k**-0.5,
        C,
        query.stride(0),
        key.stride(1),
        mask.stride(0),
        mask.stride(1) if mask.size(1) > 1 else 0,
        new_key.stride(0),
        new_value.stride(0),
        H,
        W,
        d_k,
        d_v,
        NEWEST=newest is not None,
        BLOCK=128 // query.element_size(),  # 64 in float32 need more registers than there are
        num_warps=4,
        num_stages=1,  # more need memory on the chip, and most sentences have few blocks
    )
    return output


@triton.jit
def _attend(
    query,
    key,
    value,
    mask,
    new_key,
    new_value,
    position,
    output,
    scale,
    C,
    query_step,
    head_step,
    mask_step,
    mask_row,
    new_key_step,
    new_value_step,
    H: tl.constexpr,
    W: tl.constexpr,
    D_K: tl.constexpr,
    D_V: tl.constexpr,
    NEWEST: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """A head of a sentence, with all its hypotheses. Columns that none sees are not read."""
    place = tl.program_id(0).to(tl.int64)
    sentence = place // H
    head = place % H
    row = tl.arange(0, ROWS)[:, None]
    is_row = row < W
    of_rows = sentence * W + row
    k = tl.arange(0, D_K)[None, :]
    v = tl.arange(0, D_V)[None, :]
    key += place * head_step
    value += place * head_step
    if NEWEST:
        newest = (tl.load(position + sentence * W) * W + row) * (D_K + D_V)
        new_keys = tl.load(new_key + of_rows * new_key_step + head * D_K + k, is_row, 0.0)
        new_values = tl.load(new_value + of_rows * new_value_step + head * D_V + v, is_row, 0.0)
        tl.store(key + newest + k, new_keys, is_row)
        tl.store(value + newest + v, new_values, is_row)
        tl.debug_barrier()  # other threads of the program read them
    q = tl.load(query + of_rows * query_step + head * D_K + k, is_row, 0.0)
    greatest = tl.full([ROWS], LOWEST, tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    mean = tl.zeros([ROWS, D_V], tl.float32)
    for start in range(0, C, BLOCK):
        column = start + tl.arange(0, BLOCK)
        hidden = tl.load(
            mask + sentence * mask_step + row * mask_row + column[None, :],
            is_row & (column < C)[None, :],
            float("-inf"),
        ).to(tl.float32)
        seen = (tl.max(hidden, 0) == 0)[:, None]
        of_columns = column[:, None] * (D_K + D_V)
        keys = tl.load(key + of_columns + k, seen, 0.0)
        values = tl.load(value + of_columns + v, seen, 0.0)
        scores = tl.dot(q, tl.trans(keys), input_precision="ieee") * scale + hidden
        before = greatest
        greatest = tl.maximum(before, tl.max(scores, 1))
        weights = tl.exp(scores - greatest[:, None])
        factor = tl.exp(before - greatest)
        total = total * factor + tl.sum(weights, 1)
        product = tl.dot(weights.to(values.dtype), values, input_precision="ieee")
        mean = mean * factor[:, None] + product
    tl.store(output + (of_rows * H + head) * D_V + v, mean / total[:, None], is_row)
