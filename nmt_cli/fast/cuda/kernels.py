"""Kernels in Triton, for what an update computes beside its products.

A program computes every n-th tile, where n is the number of programs. So sums over rows have a
fixed order. `operators.py` launches the kernels.

Letters: N rows, C columns of a row, M rows of a tile, W width of a bin, D width of a head, V
vocabulary.
"""

from __future__ import annotations

import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)
ROUNDS = tl.constexpr(7)  # of Philox: with fewer, its authors' tests fail


@triton.jit
def places(rows, head, stride, D: tl.constexpr):
    """Return where a head is in `rows` of `stride` numbers: [rows, D]."""
    columns = head * D + tl.arange(0, D)
    return rows.to(tl.int64)[:, None] * stride + columns[None, :]


@triton.jit
def weights(scores, query_sentences, key_sentences, is_causal, AXIS: tl.constexpr):
    """Return a softmax over the keys, before the division by its sum.

    Args:
        scores: times log2(e). The keys are on dimension `AXIS`.
        is_causal: where the key is not after the query.
    """
    # The filler sees every key, because a softmax over none would be NaN.
    allowed = ((query_sentences == key_sentences) | (query_sentences == 0)) & is_causal
    scores = tl.where(allowed, scores, float("-inf"))
    return tl.exp2(scores - tl.expand_dims(tl.max(scores, AXIS), AXIS))


@triton.jit
def attention(
    query,
    key,
    value,
    output,
    query_sentences,
    key_sentences,
    query_stride,
    key_stride,
    heads,
    scale,
    tiles,
    CAUSAL: tl.constexpr,
    M: tl.constexpr,
    W: tl.constexpr,
    D: tl.constexpr,
):
    """Attention within each sentence of a bin. A tile is a head of M queries, and all keys."""
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        head = tile % heads
        query_rows = tile // heads * M + tl.arange(0, M)
        key_rows = tile // heads * M // W * W + tl.arange(0, W)
        of_key = places(key_rows, head, key_stride, D)
        q = tl.load(query + places(query_rows, head, query_stride, D))
        k = tl.load(key + of_key)
        v = tl.load(value + of_key)
        scores = tl.dot(q, tl.trans(k), input_precision="ieee") * (scale * LOG2_E)
        query_sentence = tl.load(query_sentences + query_rows)[:, None]
        key_sentence = tl.load(key_sentences + key_rows)[None, :]
        order = query_rows[:, None] >= key_rows[None, :] if CAUSAL else True
        p = weights(scores, query_sentence, key_sentence, order, 1)
        mean = tl.dot(p.to(v.dtype), v, input_precision="ieee") / tl.sum(p, 1)[:, None]
        at = places(query_rows, head, heads * D, D)
        tl.store(output + at, mean.to(output.dtype.element_ty))


@triton.jit
def attention_backward(
    gradient,
    query,
    key,
    value,
    query_gradient,
    key_gradient,
    value_gradient,
    query_sentences,
    key_sentences,
    query_stride,
    key_stride,
    heads,
    scale,
    tiles,
    CAUSAL: tl.constexpr,
    W: tl.constexpr,
    D: tl.constexpr,
):
    """The gradients of `attention`, which have the strides of queries, and of keys and values.

    Scores are [keys, queries], so that only the last product needs them the other way.
    """
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        head = tile % heads
        rows = tile // heads * W + tl.arange(0, W)
        of_query = places(rows, head, query_stride, D)
        of_key = places(rows, head, key_stride, D)
        q = tl.load(query + of_query)
        k = tl.load(key + of_key)
        v = tl.load(value + of_key)
        g = tl.load(gradient + places(rows, head, heads * D, D))
        scores = tl.dot(k, tl.trans(q), input_precision="ieee") * (scale * LOG2_E)
        query_sentence = tl.load(query_sentences + rows)[None, :]
        key_sentence = tl.load(key_sentences + rows)[:, None]
        order = rows[:, None] <= rows[None, :] if CAUSAL else True
        p = weights(scores, query_sentence, key_sentence, order, 0)
        p = p / tl.sum(p, 0)[None, :]
        dv = tl.dot(p.to(g.dtype), g, input_precision="ieee")
        tl.store(value_gradient + of_key, dv.to(v.dtype))
        dp = tl.dot(v, tl.trans(g), input_precision="ieee")
        ds = p * (dp - tl.sum(p * dp, 0)[None, :]) * scale
        ds = ds.to(q.dtype)
        dk = tl.dot(ds, q, input_precision="ieee")
        tl.store(key_gradient + of_key, dk.to(k.dtype))
        dq = tl.dot(tl.trans(ds), k, input_precision="ieee")
        tl.store(query_gradient + of_query, dq.to(q.dtype))


@triton.jit
def dropped(x, seed, rows, threshold, scale, M: tl.constexpr, C: tl.constexpr):
    """Dropout of a tile [M, C] by the numbers of `seed` at its rows.

    A call of the generator serves four columns.
    """
    calls = rows[:, None] * (C // 4) + tl.arange(0, C // 4)[None, :]
    first, second, third, fourth = tl.randint4x(seed, calls, ROUNDS)
    pairs = tl.join(tl.join(first, third), tl.join(second, fourth))
    numbers = tl.reshape(pairs, (M, C)).to(tl.int32, bitcast=True)
    return tl.where(numbers >= threshold, x * scale, 0.0)


@triton.jit
def residual_norm(
    x,
    y,
    weight,
    bias,
    output,
    normed,
    inverse_deviation,
    seed,
    epsilon,
    threshold,
    scale,
    N,
    tiles,
    DROPS: tl.constexpr,
    M: tl.constexpr,
    C: tl.constexpr,
):
    """Layer normalisation of x + Dropout(y). `normed` is the output before `weight` and `bias`."""
    columns = tl.arange(0, C)
    w = tl.load(weight + columns)[None, :]
    b = tl.load(bias + columns)[None, :]
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        rows = tile * M + tl.arange(0, M)
        at = rows[:, None].to(tl.int64) * C + columns[None, :]
        real = (rows < N)[:, None]
        branch = tl.load(y + at, real, 0.0).to(tl.float32)
        if DROPS:
            branch = dropped(branch, tl.load(seed), rows, threshold, scale, M, C)
        total = tl.load(x + at, real, 0.0).to(tl.float32) + branch
        centred = total - (tl.sum(total, 1) / C)[:, None]
        inverse = 1.0 / tl.sqrt(tl.sum(centred * centred, 1) / C + epsilon)
        z = centred * inverse[:, None]
        tl.store(normed + at, z.to(normed.dtype.element_ty), real)
        tl.store(output + at, (z * w + b).to(output.dtype.element_ty), real)
        tl.store(inverse_deviation + rows, inverse, rows < N)


@triton.jit
def residual_norm_backward(
    gradient,
    normed,
    weight,
    inverse_deviation,
    seed,
    x_gradient,
    y_gradient,
    sums,
    threshold,
    scale,
    N,
    tiles,
    DROPS: tl.constexpr,
    M: tl.constexpr,
    C: tl.constexpr,
):
    """The gradients of `residual_norm`.

    Those of weight and bias are summed over a program's tiles: `sums` [programs, 2, C].
    """
    columns = tl.arange(0, C)
    w = tl.load(weight + columns)[None, :]
    of_weight = tl.zeros((M, C), tl.float32)
    of_bias = tl.zeros((M, C), tl.float32)
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        rows = tile * M + tl.arange(0, M)
        at = rows[:, None].to(tl.int64) * C + columns[None, :]
        real = (rows < N)[:, None]
        g = tl.load(gradient + at, real, 0.0).to(tl.float32)
        z = tl.load(normed + at, real, 0.0).to(tl.float32)
        inverse = tl.load(inverse_deviation + rows, rows < N, 0.0)[:, None]
        of_weight += g * z
        of_bias += g
        g = g * w
        projection = (tl.sum(g * z, 1) / C)[:, None]
        dx = inverse * (g - (tl.sum(g, 1) / C)[:, None] - z * projection)
        tl.store(x_gradient + at, dx.to(x_gradient.dtype.element_ty), real)
        if DROPS:
            dx = dropped(dx, tl.load(seed), rows, threshold, scale, M, C)
        tl.store(y_gradient + at, dx.to(y_gradient.dtype.element_ty), real)
    program = sums + tl.program_id(0) * 2 * C + columns
    tl.store(program, tl.sum(of_weight, 0))
    tl.store(program + C, tl.sum(of_bias, 0))


@triton.jit
def relu_backward(
    gradient,
    output,
    input_gradient,
    sums,
    N,
    tiles,
    C: tl.constexpr,
    M: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The gradient of what ReLU made `output` [N, C] of, and its sums [programs, C] over the rows.

    Args:
        BLOCK: a power of two, at least C.
    """
    columns = tl.arange(0, BLOCK)
    total = tl.zeros((M, BLOCK), tl.float32)
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        rows = tile * M + tl.arange(0, M)
        at = rows[:, None].to(tl.int64) * C + columns[None, :]
        real = (rows < N)[:, None] & (columns < C)[None, :]
        passes = tl.load(output + at, real, 0.0) > 0
        g = tl.where(passes, tl.load(gradient + at, real, 0.0), 0.0)
        tl.store(input_gradient + at, g, real)
        total += g.to(tl.float32)
    tl.store(sums + tl.program_id(0) * C + columns, tl.sum(total, 0), columns < C)


@triton.jit
def cross_entropy(
    logits,
    targets,
    log_normalisers,
    target_logits,
    share,
    tiles,
    V: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The loss of a row, which becomes its gradient: see `fast/loss.py`.

    The blocks that were read last are overwritten first, as they are still in the cache.

    Args:
        share: of the target in q, without the uniform part.
    """
    columns = tl.arange(0, BLOCK)
    blocks: tl.constexpr = (V + BLOCK - 1) // BLOCK
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        row = logits + tl.cast(tile, tl.int64) * V
        target = tl.load(targets + tile)
        tl.store(target_logits + tile, tl.load(row + target).to(tl.float32))
        largest = tl.full((), float("-inf"), tl.float32)
        total = tl.zeros((), tl.float32)
        for block in range(blocks):
            at = block * BLOCK + columns
            x = tl.load(row + at, at < V, float("-inf")).to(tl.float32) * LOG2_E
            before = largest
            largest = tl.maximum(before, tl.max(x, 0))
            total = total * tl.exp2(before - largest) + tl.sum(tl.exp2(x - largest), 0)
        normaliser = largest + tl.log2(total)
        tl.store(log_normalisers + tile, normaliser / LOG2_E)
        for block in range(blocks):
            at = (blocks - 1 - block) * BLOCK + columns
            x = tl.load(row + at, at < V, 0.0).to(tl.float32) * LOG2_E
            p = tl.exp2(x - normaliser) - tl.where(at == target, share, 0.0)
            tl.store(row + at, p.to(logits.dtype.element_ty), at < V)
