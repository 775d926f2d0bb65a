"""Floating-point operations of the Transformer, counted from its configuration; a multiply-add is two.

Matrix products only, as is usual: embeddings, softmax, layer normalisation, biases and dropout are under 2 %.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from nmt_cli.interfaces import with_backward
from nmt_cli.layers.experts import expert_flops

if TYPE_CHECKING:
    from nmt_cli.interfaces import Lengths


def training_flops(
    config: Any, attention: Any, vocabulary_size: int, source: Lengths, target: Lengths
) -> dict[str, float]:
    """Operations of a forward and a backward pass, by part. Padding is not counted.

    Args:
        config: the model's `TransformerConfig`.
        attention: the configuration of the self-attention kernel; a field `neighbourhood` restricts the pairs counted,
            and with a field `clipping_distance` each costs twice as much, for the relative positions.
        source, target: lengths of sentence pairs, EOS included: [sentences].
    """
    N, N_decoder, d, h = config.num_layers, config.decoder_layers, config.d_model, config.num_heads
    d_k, d_v = config.head_widths()
    S, T = float(source.sum()), float(target.sum())
    neighbourhood = getattr(attention, "neighbourhood", None)
    queries_and_output = 2 * d * h * (d_k + d_v)
    keys_and_values = 2 * d * h * (d_k + d_v)
    each_pair = 2 * h * (d_k + d_v)  # a score, and a term of the weighted sum
    each_own_pair = each_pair * (2 if hasattr(attention, "clipping_distance") else 1)
    feed_forward = 2 * (3 if config.gated_feed_forward else 2) * d * config.d_ff
    if config.experts:
        feed_forward = expert_flops(d, config.d_ff, config.experts, config.experts_per_token)
    forward = {
        "encoder projections": N * S * (queries_and_output + keys_and_values),
        "encoder attention": N * pairs(source, neighbourhood) * each_own_pair,
        "encoder feed-forward": N * S * feed_forward,
        "decoder projections": N_decoder * T * (queries_and_output + keys_and_values),
        "decoder attention": N_decoder * pairs(target, neighbourhood) * each_own_pair,
        "cross projections": N_decoder * (T * queries_and_output + S * keys_and_values),
        "cross attention": N_decoder * float((source * target).sum()) * each_pair,
        "decoder feed-forward": N_decoder * T * feed_forward,
        "output layer": T * 2 * d * vocabulary_size,
    }
    return with_backward(forward)


def pairs(lengths: Lengths, neighbourhood: int | None) -> float:
    """(query, key) pairs of self-attention: n^2 a sentence, or at most n (2 floor(r / 2) + 1) if restricted.

    The causal mask saves none.
    """
    attended = lengths if neighbourhood is None else np.minimum(lengths, 2 * (neighbourhood // 2) + 1)
    return float((lengths * attended).sum())
