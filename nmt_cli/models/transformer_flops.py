"""Floating-point operations of the Transformer, counted from its configuration.

Only matrix products count, as is usual. A multiply-add is two operations. Embeddings, softmax,
layer normalisation, biases and dropout are less than 2 % of all operations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nmt_cli.layers.attention import Kernel

if TYPE_CHECKING:
    from nmt_cli.interfaces import Lengths


def training_flops(
    config: Any, kernel: Kernel, vocabulary_size: int, source: Lengths, target: Lengths
) -> dict[str, float]:
    """Operations of a forward and a backward pass, by part. Padding is not counted.

    Args:
        config: the model's `TransformerConfig`.
        kernel: of self-attention.
        source, target: lengths of sentence pairs, EOS included: [sentences].
    """
    N, N_decoder = config.num_layers, config.decoder_layers
    d, h = config.d_model, config.num_heads
    width = sum(config.head_widths())  # d_k + d_v
    S, T = float(source.sum()), float(target.sum())
    pairs = float((source * target).sum())
    # For a token: queries and outputs. Keys and values need as many.
    projections = 2 * d * h * width
    # For a query and a key: a score, and a term of the weighted sum.
    cross_attention = 2 * h * width
    # For a token.
    matrices = 3 if config.gated_feed_forward else 2
    feed_forward = 2 * matrices * d * config.d_ff
    forward = {
        "encoder projections": N * S * 2 * projections,
        "encoder attention": N * h * kernel.flops(source, width),
        "encoder feed-forward": N * S * feed_forward,
        "decoder projections": N_decoder * T * 2 * projections,
        "decoder attention": N_decoder * h * kernel.flops(target, width),
        "cross projections": N_decoder * (T + S) * projections,
        "cross attention": N_decoder * pairs * cross_attention,
        "decoder feed-forward": N_decoder * T * feed_forward,
        "output layer": T * 2 * d * vocabulary_size,
    }
    # Gradients of input and weight cost a forward pass each.
    return {part: 3 * operations for part, operations in forward.items()}
