"""Bytes that autograd keeps of the Transformer's forward pass for its backward pass, counted from shapes.

Of every token, padding counted (d, h, d_k, d_v, d_ff as in Table 3):

    each sub-layer      what its normalisation reads, and dropout's mask: d each
    projections         their input and the heads' output: d + h d_v
    attention           queries, keys and values as the kernel reads them, h (2 d_k + d_v), and its weights
    feed-forward        its input and its inner layer: d + d_ff

Attention over n keys has h n weights a query. Restricted attention has 3 h floor(r / 2) of them, twice, and copies
each block of keys and values three times. Where weights or the inner layer have dropout, a mask and the product come
besides.

A number takes 4 bytes. In bfloat16 those that products read or write take 2, but what k products read is copied k
times; residual sums stay at 4, and each weight matrix has a copy. On GPUs a dropout mask takes one byte a number, and
full attention is one kernel, which keeps a float32 a query and head instead of its weights.

Left out: ids, attention masks, the normalisation's means and deviations, its last one in a pre-norm model; and what
operations need only while they run.
"""

from __future__ import annotations

from dataclasses import dataclass

from nmt_cli.models.transformer_flops import Shape


@dataclass(frozen=True)
class Keeping:
    """How numbers are kept: in bytes of one."""

    low: bool  # products are in bfloat16
    on_gpu: bool

    @property
    def product(self) -> int:
        """A product's input or output."""
        return 2 if self.low else 4

    def read(self, products: int) -> int:
        """What so many products read: itself, or a copy for each."""
        return 2 * products if self.low else 4

    def mask(self, rate: float, size: int) -> int:
        """Dropout's mask of numbers of `size` bytes."""
        return 0 if rate == 0.0 else 1 if self.on_gpu else size

    def dropped(self, rate: float) -> int:
        """A mask, and the masked number as the next product reads it."""
        return self.mask(rate, self.product) + (self.product if rate else 0)


def training_memory(shape: Shape, sentences: int, source: int, target: int, keeping: Keeping) -> dict[str, int]:
    """By part, for a micro-batch of `sentences`, padded to `source` and `target` tokens."""
    N, d, h = shape.num_layers, shape.d_model, shape.num_heads
    S, T = sentences * source, sentences * target
    size = keeping.product
    around = d * (4 + keeping.mask(shape.dropout, size))
    projections = around + d * keeping.read(3) + h * shape.d_v * size
    feed_forward = around + d * keeping.read(1) + shape.d_ff * (size + keeping.dropped(shape.feed_forward_dropout))
    # In float32 all layers read the same encoder output.
    memory = N * S * d * keeping.read(2) if keeping.low else S * d * keeping.read(1)
    parts = {
        "embeddings": (S + T) * d * keeping.mask(shape.dropout, 4),
        "encoder projections": N * S * projections,
        "encoder attention": N * sentences * self_attention(shape, source, keeping),
        "encoder feed-forward": N * S * feed_forward,
        "decoder projections": N * T * projections,
        "decoder attention": N * sentences * self_attention(shape, target, keeping),
        "cross projections": N * T * (around + d * keeping.read(1) + h * shape.d_v * size) + memory,
        "cross attention": N * sentences * full_attention(shape, target, source, keeping),
        "decoder feed-forward": N * T * feed_forward,
    }
    return {**parts, "weights in bfloat16": 2 * matrices(shape)} if keeping.low else parts


def self_attention(shape: Shape, length: int, keeping: Keeping) -> int:
    """What the kernel of one layer keeps of one sentence."""
    if shape.neighbourhood is None:
        return full_attention(shape, length, length, keeping)
    reach = shape.neighbourhood // 2
    padded = -(-length // reach) * reach
    blocks = padded * (shape.d_k + 3 * shape.d_k + 3 * shape.d_v) * keeping.product
    softmax = 4 if keeping.on_gpu else keeping.product  # on GPUs it stays in float32
    a_weight = softmax + keeping.product + keeping.mask(shape.attention_dropout, softmax)
    return shape.num_heads * (blocks + padded * 3 * reach * a_weight)


def full_attention(shape: Shape, queries: int, keys: int, keeping: Keeping) -> int:
    """The same, of every query over every key."""
    read = (queries * shape.d_k + keys * (shape.d_k + shape.d_v)) * keeping.product
    if keeping.on_gpu:
        return shape.num_heads * (read + queries * 4)
    return shape.num_heads * (read + queries * keys * (keeping.product + keeping.dropped(shape.attention_dropout)))


def matrices(shape: Shape) -> int:
    """Numbers in the weight matrices of all layers."""
    attention = 2 * shape.d_model * shape.num_heads * (shape.d_k + shape.d_v)
    return shape.num_layers * (3 * attention + 2 * 2 * shape.d_model * shape.d_ff)
