"""Floating-point operations of the Transformer, counted from its shapes: a multiply-add is two.

Embedding look-ups, softmax, layer normalisation, biases and dropout are left out, as is usual: under 2 % of the whole.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Lengths = NDArray[np.int64]

BACKWARD = 2
"""The backward pass costs twice the forward pass: one product for the input's gradient, one for the weight's."""


@dataclass(frozen=True)
class Shape:
    """The letters of Table 3, V, r where self-attention is restricted to a neighbourhood, and where dropout stands."""

    num_layers: int
    d_model: int
    d_ff: int
    num_heads: int
    d_k: int
    d_v: int
    vocabulary_size: int
    neighbourhood: int | None = None
    dropout: float = 0.0
    attention_dropout: float = 0.0
    feed_forward_dropout: float = 0.0


def training_flops(shape: Shape, source: Lengths, target: Lengths) -> dict[str, float]:
    """Forward and backward, by part, for sentence pairs of the lengths `source` and `target` (EOS counted):
    [sentences].

    Attention counts every pair of positions that a full softmax sees; the causal mask saves none. Padding is not
    counted.
    """
    forward = forward_flops(shape, source, target)
    return {part: (1 + BACKWARD) * flops for part, flops in forward.items()}


def forward_flops(shape: Shape, source: Lengths, target: Lengths) -> dict[str, float]:
    """The forward pass alone, by part."""
    N, d, h = shape.num_layers, shape.d_model, shape.num_heads
    S, T = float(source.sum()), float(target.sum())
    queries_and_output = 2 * d * h * (shape.d_k + shape.d_v)
    keys_and_values = 2 * d * h * (shape.d_k + shape.d_v)
    each_pair = 2 * h * (shape.d_k + shape.d_v)  # a score, and a term of the weighted sum
    feed_forward = 2 * 2 * d * shape.d_ff
    return {
        "encoder projections": N * S * (queries_and_output + keys_and_values),
        "encoder attention": N * pairs(source, shape.neighbourhood) * each_pair,
        "encoder feed-forward": N * S * feed_forward,
        "decoder projections": N * T * (queries_and_output + keys_and_values),
        "decoder attention": N * pairs(target, shape.neighbourhood) * each_pair,
        "cross projections": N * (T * queries_and_output + S * keys_and_values),
        "cross attention": N * float((source * target).sum()) * each_pair,
        "decoder feed-forward": N * T * feed_forward,
        "output layer": T * 2 * d * shape.vocabulary_size,
    }


def pairs(lengths: Lengths, neighbourhood: int | None) -> float:
    """How many (query, key) pairs self-attention looks at: n^2 a sentence, or n (2 floor(r / 2) + 1) at most
    where it is restricted.
    """
    seen = lengths if neighbourhood is None else np.minimum(lengths, 2 * (neighbourhood // 2) + 1)
    return float((lengths * seen).sum())
