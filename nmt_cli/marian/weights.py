"""The weights of transformers' MarianMTModel beside the weights of our Transformer.

Both are post-norm with sinusoidal positions. Marian's encoding has the sines first and then the cosines, where ours has
them in turn (section 3.5). So the features of the model's width are in another order in every weight.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

SETTINGS = {
    "d_model": ("d_model",),
    "num_layers": ("encoder_layers",),
    "num_decoder_layers": ("decoder_layers",),
    "d_ff": ("encoder_ffn_dim", "decoder_ffn_dim"),
    "num_heads": ("encoder_attention_heads", "decoder_attention_heads"),
    "activation": ("activation_function",),
    "dropout": ("dropout",),
    "attention_dropout": ("attention_dropout",),
    "feed_forward_dropout": ("activation_dropout",),
}
"""Our settings, and Marian's. Dropout has the same defaults."""
SHARED = "model.shared.weight"
SIDES = ("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight")
"""The embeddings of a shared vocabulary, and of source and target."""
OUTPUT = "lm_head.weight"  # tied to the embedding
OUTPUT_BIAS = "final_logits_bias"  # [1, V]
_READING, _WRITING = 1, 0  # the axis of a weight that has the model's width: a layer reads it, or writes it
_ENCODER = {
    **{f"self_attention.w_{letter}": (f"self_attn.{letter}_proj", _READING) for letter in "qkv"},
    "self_attention.w_o": ("self_attn.out_proj", _WRITING),
    "around_self_attention.norm": ("self_attn_layer_norm", _WRITING),
    "feed_forward.inner": ("fc1", _READING),
    "feed_forward.outer": ("fc2", _WRITING),
    "around_feed_forward.norm": ("final_layer_norm", _WRITING),
}
_DECODER = {
    **_ENCODER,
    **{f"cross_attention.w_{letter}": (f"encoder_attn.{letter}_proj", _READING) for letter in "qkv"},
    "cross_attention.w_o": ("encoder_attn.out_proj", _WRITING),
    "around_cross_attention.norm": ("encoder_attn_layer_norm", _WRITING),
}


class Pair(NamedTuple):
    """A weight or a bias of a layer."""

    ours: str
    theirs: str
    axis: int | None  # the one that has the model's width


def layer_weights(encoder_layers: int, decoder_layers: int) -> Iterator[Pair]:
    """Yield the weights and biases of so many layers of encoder and decoder."""
    for side, modules, layers in (("encoder", _ENCODER, encoder_layers), ("decoder", _DECODER, decoder_layers)):
        for number in range(layers):
            for module, (theirs, axis) in modules.items():
                ours, theirs = f"{side}.{number}.{module}", f"model.{side}.layers.{number}.{theirs}"
                yield Pair(f"{ours}.weight", f"{theirs}.weight", axis)
                yield Pair(f"{ours}.bias", f"{theirs}.bias", axis if axis == _WRITING else None)


def marian_order(d_model: int) -> Tensor:
    """Return the feature of ours that each of Marian's features is: [d_model]."""
    return torch.cat([torch.arange(0, d_model, 2), torch.arange(1, d_model, 2)])


def reordered(tensor: Tensor, axis: int | None, order: Tensor) -> Tensor:
    """Return `tensor` with the features of `axis`, if it has such an axis, in this order."""
    return tensor if axis is None else tensor.index_select(axis, order)
