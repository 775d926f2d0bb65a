"""The weights of transformers' MarianMTModel beside the weights of our Transformer.

Both are post-norm with sinusoidal positions. Marian's encoding has the sines first and then the
cosines, where ours has them in turn (section 3.5). So the features of the model's width are in
another order in every weight.
"""

from __future__ import annotations

import torch
from torch import Tensor

from nmt_cli.annexes.exchange.fairseq.reading import NAMES as NAMES_OF_FAIRSEQ
from nmt_cli.annexes.exchange.importing.checks import read_program

PROGRAM = read_program(__file__)
# The embeddings of a shared vocabulary, and of source and target.
SHARED = "model.shared.weight"
SIDES = ("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight")
OUTPUT = "lm_head.weight"  # tied to the embedding
OUTPUT_BIAS = "final_logits_bias"  # [1, V]
NAMES = {f"model.{name}": our_name for name, our_name in NAMES_OF_FAIRSEQ.items()}
# The columns of these matrices are the features of the model's width.
_READING = ("w_q.weight", "w_k.weight", "w_v.weight", "inner.weight", "embedding.weight")
_WRITING = ("w_o", "outer", "norm")  # modules: the rows are


def feature_axis(name: str) -> int | None:
    """Return the axis of our weight `name` that has the features of the model's width, if any."""
    if name.endswith(_READING):
        return 1
    if name.split(".")[-2] in _WRITING:
        return 0
    return None


def marian_order(d_model: int) -> Tensor:
    """Return the number of our feature for each of Marian's features: [d_model]."""
    sines = torch.arange(0, d_model, 2)
    cosines = torch.arange(1, d_model, 2)
    return torch.cat([sines, cosines])


def ours_to_marian(name: str, tensor: Tensor) -> Tensor:
    """Return our weight `name` with its features in Marian's order."""
    axis = feature_axis(name)
    if axis is None:
        return tensor
    return tensor.index_select(axis, marian_order(tensor.size(axis)))


def marian_to_ours(name: str, tensor: Tensor) -> Tensor:
    """Return Marian's weight that is our `name`, with its features in our order."""
    axis = feature_axis(name)
    if axis is None:
        return tensor
    return tensor.index_select(axis, marian_order(tensor.size(axis)).argsort())
