"""Transformers of OpenNMT-py 3.

A .pt file has the vocabulary, and the weights if no .safetensors beside it has them. The models are
pre-norm, with another epsilon than ours, and their encoder does not see the end of the source.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from nmt_cli.annexes.exchange.importing.assembly import (
    ForeignTransformer,
    Side,
    assembled,
    half_sinusoids,
    our_layers,
)
from nmt_cli.annexes.exchange.importing.checks import float_weights, our_settings, read_program
from nmt_cli.annexes.exchange.importing.importers import Imported
from nmt_cli.annexes.exchange.importing.options import ImportOptions
from nmt_cli.errors import CheckpointError
from nmt_cli.interfaces import BOS, PAD, SPECIAL_SYMBOLS

takes = "a checkpoint of a Transformer of OpenNMT-py 3 (model_step_100000.pt)"

_PAD = "<blank>"  # its name of our PAD
_POSITIONS = 5000  # rows of its encodings
_PROGRAM = read_program(__file__)
_NO_WEIGHTS = re.compile(r"\.pe\.pe$")


def recognises(path: Path, saved: Mapping[str, Any]) -> bool:
    """See `importers.py`."""
    return "opt" in saved and "vocab" in saved


def read(path: Path, saved: Mapping[str, Any], options: ImportOptions) -> Imported:
    """See `importers.py`."""
    model = vars(saved["opt"])
    vocab = saved["vocab"]
    start = vocab.get("decoder_start_token") or SPECIAL_SYMBOLS[BOS]
    settings = settings_of(model, path)
    weights = weights_of(saved, path)

    def side(name: str, entries: Sequence[str]) -> Side:
        ids = ids_of(entries)
        embedding = weights.pop(f"{name}.embeddings.make_embedding.emb_luts.0.weight")
        positions = positions_of(model, embedding.size(1))
        return Side(ids, embedding, ids.get(start), positions=positions)

    source = side("encoder", vocab["src"])
    target = side("decoder", vocab["tgt"])
    output = weights.pop("generator.weight")
    bias = weights.pop("generator.bias")
    layers = our_layers(weights, _PROGRAM["names"], path)
    settings["attention_biases"] = "encoder.0.self_attention.w_q.bias" in layers
    for name, weight in list(layers.items()):
        if name.endswith((".inner.weight", ".outer.weight")):  # without add_ffnbias
            layers.setdefault(name.removesuffix("weight") + "bias", torch.zeros(len(weight)))
    transformer = ForeignTransformer(
        source,
        target,
        settings=settings,
        layers=layers,
        output=output,
        output_bias=bias,
        scaled=bool(model.get("position_encoding")),
    )
    return assembled(path, transformer, options)


def weights_of(saved: Mapping[str, Any], path: Path) -> dict[str, Tensor]:
    """Return the weights by OpenNMT-py's names.

    Raises:
        CheckpointError: there are none.
    """
    if saved.get("model"):
        tensors = dict(saved["model"])
        for name, tensor in (saved.get("generator") or {}).items():
            tensors[f"generator.{name.removeprefix('0.')}"] = tensor
    else:
        beside = path.with_suffix(".safetensors")
        if not beside.is_file():
            raise CheckpointError(f"{path}: has no weights, and {beside.name} is not beside it")
        path = beside
        tensors = load_file(beside)
    tensors = {name: tensor for name, tensor in tensors.items() if not _NO_WEIGHTS.search(name)}
    return float_weights(tensors, path)


def settings_of(model: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Return the settings of our Transformer that weights do not show."""
    settings = our_settings(model, _PROGRAM, path)
    for name in ("dropout", "attention_dropout", "feed_forward_dropout"):
        rate = settings[name]
        if isinstance(rate, list):  # of each part of training
            rate = rate[0]
        settings[name] = float(rate)
    positions = "none"
    kind = model.get("position_encoding_type", "SinusoidalInterleaved")
    if model.get("position_encoding") and kind == "SinusoidalInterleaved":
        positions = "sinusoidal"
    return settings | {"norm": "pre", "source_end": False, "positions": positions}


def positions_of(model: Mapping[str, Any], d_model: int) -> Tensor | None:
    """Return the encodings [positions, d_model], if they are not as in section 3.5 of the paper."""
    if model.get("position_encoding") and model.get("position_encoding_type") == "SinusoidalConcat":
        return half_sinusoids(0, _POSITIONS, d_model)
    return None


def ids_of(tokens: Sequence[str]) -> dict[str, int]:
    """Return the ids of a vocabulary, with our names for special symbols."""
    return {SPECIAL_SYMBOLS[PAD] if token == _PAD else token: i for i, token in enumerate(tokens)}
