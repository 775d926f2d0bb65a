"""Floating-point operations of the Transformer, counted from its configuration; a multiply-add is
two.

Matrix products only, as is usual: embeddings, softmax, layer normalisation, biases and dropout are
under 2 %.
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
    N, N_decoder, d, h = config.num_layers, config.decoder_layers, config.d_model, config.num_heads
    d_k, d_v = config.head_widths()
    S, T = float(source.sum()), float(target.sum())
    projections = 2 * d * h * (d_k + d_v)  # of queries and outputs; as many of keys and values
    each_pair = 2 * h * (d_k + d_v)  # a score, and a term of the weighted sum
    feed_forward = 2 * (3 if config.gated_feed_forward else 2) * d * config.d_ff
    forward = {
        "encoder projections": N * S * 2 * projections,
        "encoder attention": N * h * kernel.flops(source, d_k + d_v),
        "encoder feed-forward": N * S * feed_forward,
        "decoder projections": N_decoder * T * 2 * projections,
        "decoder attention": N_decoder * h * kernel.flops(target, d_k + d_v),
        "cross projections": N_decoder * (T + S) * projections,
        "cross attention": N_decoder * float((source * target).sum()) * each_pair,
        "decoder feed-forward": N_decoder * T * feed_forward,
        "output layer": T * 2 * d * vocabulary_size,
    }
    # Gradients of input and weight cost a forward pass each.
    return {part: 3 * operations for part, operations in forward.items()}
