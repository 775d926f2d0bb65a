"""Transformers of OpenNMT-py 3: a .pt file, which has the vocabulary, and the weights or a
.safetensors beside it.

They are pre-norm, with an epsilon of their own, and their encoder does not see the end of the
source.
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

_PAD = "<blank>"  # the name there of our PAD
_POSITIONS = 5000  # that its encodings have
_PROGRAM = read_program(__file__)
_NO_WEIGHTS = re.compile(r"\.pe\.pe$")


def recognises(path: Path, saved: Mapping[str, Any]) -> bool:
    """See `importers.py`."""
    return "opt" in saved and "vocab" in saved


def read(path: Path, saved: Mapping[str, Any], options: ImportOptions) -> Imported:
    """See `importers.py`."""
    model, vocab = vars(saved["opt"]), saved["vocab"]
    start = vocab.get("decoder_start_token") or SPECIAL_SYMBOLS[BOS]
    settings = settings_of(model, path)
    weights = weights_of(saved, path)

    def side(name: str, entries: Sequence[str]) -> Side:
        ids = ids_of(entries)
        embedding = weights.pop(f"{name}.embeddings.make_embedding.emb_luts.0.weight")
        return Side(
            ids, embedding, ids.get(start), positions=positions_of(model, embedding.size(1))
        )

    source, target = side("encoder", vocab["src"]), side("decoder", vocab["tgt"])
    output, bias = weights.pop("generator.weight"), weights.pop("generator.bias")
    layers = our_layers(weights, _PROGRAM["names"], path)
    for name, weight in [*layers.items()]:
        if name.endswith((".inner.weight", ".outer.weight")):  # without add_ffnbias
            layers.setdefault(name.removesuffix("weight") + "bias", torch.zeros(len(weight)))
    transformer = ForeignTransformer(
        source,
        target,
        settings=settings | {"attention_biases": "encoder.0.self_attention.w_q.bias" in layers},
        layers=layers,
        output=output,
        output_bias=bias,
        scaled=bool(model.get("position_encoding")),
    )
    return assembled(path, transformer, options)


def weights_of(saved: Mapping[str, Any], path: Path) -> dict[str, Tensor]:
    """Return the weights by their names; raise CheckpointError if there are none."""
    if saved.get("model"):
        generator = {
            name.removeprefix("0."): tensor
            for name, tensor in (saved.get("generator") or {}).items()
        }
        everything = {
            **saved["model"],
            **{f"generator.{name}": tensor for name, tensor in generator.items()},
        }
    else:
        beside = path.with_suffix(".safetensors")
        if not beside.is_file():
            raise CheckpointError(f"{path}: has no weights, and {beside.name} is not beside it")
        path = beside
        everything = load_file(beside)
    return float_weights(
        {name: each for name, each in everything.items() if not _NO_WEIGHTS.search(name)}, path
    )


def settings_of(model: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Return the settings of our Transformer that weights do not show."""
    settings = our_settings(model, _PROGRAM, path)
    for name in ("dropout", "attention_dropout", "feed_forward_dropout"):
        rate = settings[name]
        # Of the first part of training.
        settings[name] = float(rate[0] if isinstance(rate, list) else rate)
    interleaved = (
        model.get("position_encoding_type", "SinusoidalInterleaved") == "SinusoidalInterleaved"
    )
    positions = "sinusoidal" if model.get("position_encoding") and interleaved else "none"
    return settings | {"norm": "pre", "source_end": False, "positions": positions}


def positions_of(model: Mapping[str, Any], d_model: int) -> Tensor | None:
    """Return the encodings [positions, d_model], if they are not as in section 3.5 of the paper."""
    if (
        not model.get("position_encoding")
        or model.get("position_encoding_type") != "SinusoidalConcat"
    ):
        return None
    return half_sinusoids(0, _POSITIONS, d_model)


def ids_of(tokens: Sequence[str]) -> dict[str, int]:
    """Return the ids of a vocabulary, with our names for special symbols."""
    return {SPECIAL_SYMBOLS[PAD] if token == _PAD else token: i for i, token in enumerate(tokens)}
