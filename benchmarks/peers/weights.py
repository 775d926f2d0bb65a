"""The weights of nmt's checkpoint for other programs, without nmt or PyTorch."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

Weights = dict[str, Any]  # arrays of float32

FAIRSEQ_NAMES = {
    "encoder.": "encoder.layers.",
    "decoder.": "decoder.layers.",
    "around_self_attention.norm": "self_attn_layer_norm",
    "around_cross_attention.norm": "encoder_attn_layer_norm",
    "around_feed_forward.norm": "final_layer_norm",
    "self_attention": "self_attn",
    "cross_attention": "encoder_attn",
    "w_q": "q_proj",
    "w_k": "k_proj",
    "w_v": "v_proj",
    "w_o": "out_proj",
    "feed_forward.inner": "fc1",
    "feed_forward.outer": "fc2",
}
"""Parts of nmt's names and of fairseq's, which transformers uses too."""


MARIAN_NAMES = {
    ".self_attention.w_": "_self_W",
    ".cross_attention.w_": "_context_W",
    ".around_self_attention.norm": "_self_Wo_ln",
    ".around_cross_attention.norm": "_context_Wo_ln",
    ".around_feed_forward.norm": "_ffn_ffn_ln",
    ".feed_forward.inner.weight": "_ffn_W1",
    ".feed_forward.inner.bias": "_ffn_b1",
    ".feed_forward.outer.weight": "_ffn_W2",
    ".feed_forward.outer.bias": "_ffn_b2",
    "_ln.weight": "_ln_scale",
    "_ln.bias": "_ln_bias",
    ".weight": "",
}
"""Parts of nmt's names and of Marian's."""


def read(checkpoint: str) -> Weights:
    """Return the arrays of a checkpoint's model.safetensors by name."""
    content = (Path(checkpoint) / "model.safetensors").read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:start])
    header.pop("__metadata__", None)
    weights = {}
    for name, entry in header.items():
        count, place = int(np.prod(entry["shape"])), start + entry["data_offsets"][0]
        weights[name] = (
            np.frombuffer(content, np.float32, count, place).reshape(entry["shape"]).copy()
        )
    return weights


def fairseq_layers(weights: Weights) -> Iterator[tuple[str, Any]]:
    """Yield the weights of the layers by fairseq's names, with biases of 0 for the attention."""
    for name, array in weights.items():
        if not name.startswith(("encoder.", "decoder.")):
            continue
        their_name = name
        for old, new in FAIRSEQ_NAMES.items():
            their_name = their_name.replace(old, new)
        yield their_name, array
        if "_proj." in their_name:
            yield their_name.replace(".weight", ".bias"), np.zeros(len(array), np.float32)


def marian_arrays(weights: Weights) -> Iterator[tuple[str, Any]]:
    """Yield the weights by Marian's names: products from the right, and sines before cosines."""
    width = weights["target_embedding.weight"].shape[1]
    order = np.r_[0:width:2, 1:width:2]
    yield "Wemb", weights["target_embedding.weight"][:, order]
    for name, array in weights.items():
        if not name.startswith(("encoder.", "decoder.")):
            continue
        their_name = re.sub(
            r"^(\w+)\.(\d+)", lambda match: f"{match[1]}_l{int(match[2]) + 1}", name
        )
        for old, new in MARIAN_NAMES.items():
            their_name = their_name.replace(old, new)
        reads = their_name.endswith(("Wq", "Wk", "Wv", "W1"))
        if reads:
            array = array[:, order]
        elif not their_name.endswith("ffn_b1"):
            array = array[order]
        yield their_name, array.T


def sinusoids(length: int, width: int) -> Any:
    """The positional encoding of the paper's section 3.5, [length, width]."""
    angle = np.arange(length)[:, None] * np.exp(np.arange(0, width, 2) * (-np.log(10000.0) / width))
    return (
        np.stack([np.sin(angle), np.cos(angle)], axis=-1).reshape(length, width).astype(np.float32)
    )
