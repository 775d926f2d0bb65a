"""A MarianMTModel folder of Hugging Face Transformers, such as an OPUS-MT model, as a checkpoint of
ours.

Its decoder starts with the padding symbol.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from nmt_cli.annexes.exchange.importing.assembly import (
    ForeignTransformer,
    Side,
    assembled,
    our_layers,
)
from nmt_cli.annexes.exchange.importing.checks import float_weights, our_settings, saved_objects
from nmt_cli.annexes.exchange.importing.importers import Imported
from nmt_cli.annexes.exchange.importing.options import ImportOptions
from nmt_cli.annexes.exchange.marian.pieces import MarianPieces
from nmt_cli.annexes.exchange.marian.weights import (
    NAMES,
    OUTPUT,
    OUTPUT_BIAS,
    PROGRAM,
    SHARED,
    SIDES,
    marian_to_ours,
)
from nmt_cli.config import flag
from nmt_cli.data.subwords import LARGEST_FILE
from nmt_cli.errors import CheckpointError, UsageError
from nmt_cli.files.text import check_regular, read_object
from nmt_cli.interfaces import BOS, PAD, SPECIAL_SYMBOLS

WEIGHTS = ("model.safetensors", "pytorch_model.bin")  # the first one there is read
# Options of other importers.
_TEXT = ("subwords", "target_subwords", "moses", "moses_escape", "lowercase")

takes = "a folder of Hugging Face Transformers with a MarianMTModel, such as OPUS-MT's (hf download NAME)"


def recognises(path: Path, saved: Mapping[str, Any]) -> bool:
    """See `importers.py`."""
    config = path / "config.json"
    return config.is_file() and _object(config).get("model_type") == "marian"


def read(folder: Path, saved: Mapping[str, Any], options: ImportOptions) -> Imported:
    """See `importers.py`."""
    if given := [flag(name) for name in _TEXT if getattr(options, name)]:
        raise UsageError(
            f"{given[0]} cannot be used with {folder}, which has its own SentencePiece models"
        )
    config = _object(folder / "config.json")
    settings = our_settings(config, PROGRAM, folder / "config.json") | {"attention_biases": True}
    if settings["activation"] == "silu":
        settings["activation"] = "swish"
    weights_file = next((folder / name for name in WEIGHTS if (folder / name).is_file()), None)
    if weights_file is None:
        raise CheckpointError(
            f"{folder}: has no weights for PyTorch: expected {' or '.join(WEIGHTS)}"
        )
    weights = load_weights(weights_file)
    shared = config.get("share_encoder_decoder_embeddings", True)
    embeddings = [
        marian_to_ours("embedding.weight", matrix)
        for matrix in embeddings_of(weights, shared, folder)
    ]
    source, target = vocabularies_of(folder, shared)
    start = config.get("decoder_start_token_id")
    source_start = (
        start if shared else source.get(SPECIAL_SYMBOLS[BOS], source.get(SPECIAL_SYMBOLS[PAD]))
    )
    path = folder / "tokenizer_config.json"
    tokenizer = _object(path) if path.is_file() else {}
    layers = our_layers(
        {name: weight for name, weight in weights.items() if ".layers." in name},
        NAMES,
        weights_file,
    )
    model = ForeignTransformer(
        source=Side(source, embeddings[0], source_start, tokenizer.get("source_lang")),
        target=Side(target, embeddings[1], start, tokenizer.get("target_lang")),
        settings=settings,
        layers={name: marian_to_ours(name, weight) for name, weight in layers.items()},
        output=embeddings[1],
        output_bias=weights[OUTPUT_BIAS][0]
        if OUTPUT_BIAS in weights
        else torch.zeros(len(embeddings[1])),
    )
    models = replace(options, subwords=folder / "source.spm", target_subwords=folder / "target.spm")
    return assembled(weights_file, model, models, pieces_of)


def load_weights(path: Path) -> dict[str, Tensor]:
    """Return the weights by Marian's names, in float32. Nothing is unpickled but tensors."""
    try:
        tensors = load_file(path) if path.suffix == ".safetensors" else saved_objects(path)
    except SafetensorError as error:
        raise CheckpointError(f"{path}: cannot read the weights: {error}") from error
    if not tensors:
        raise CheckpointError(f"{path}: cannot read the weights: the file is empty or damaged")
    return float_weights(tensors, path)


def embeddings_of(weights: Mapping[str, Tensor], shared: bool, folder: Path) -> list[Tensor]:
    """Return the embeddings of source and target. Tied weights are saved once, under any of their
    names.
    """
    sides = [[SHARED, *SIDES, OUTPUT]] * 2 if shared else [SIDES[:1], [SIDES[1], OUTPUT]]
    embeddings = []
    for names in sides:
        matrices = [weights[name] for name in names if name in weights]
        if not matrices:
            raise CheckpointError(f"{folder}: its weights lack {' and '.join(names)}")
        embeddings.append(matrices[0])
    return embeddings


def vocabularies_of(folder: Path, shared: bool) -> list[dict[str, int]]:
    """Return the ids of the entries of source and target."""
    source, target = folder / "vocab.json", folder / "target_vocab.json"
    if shared or not target.is_file():
        target = source
    added = folder / "added_tokens.json"
    more = _object(added) if added.is_file() else {}
    return [_object(path) | more for path in (source, target)]


def pieces_of(pieces: Sequence[str], path: Path) -> MarianPieces:
    """Return the vocabulary of the pieces that the SentencePiece model in `path` makes."""
    check_regular(path, LARGEST_FILE)
    try:
        return MarianPieces(pieces, path.read_bytes())
    except RuntimeError as error:
        raise CheckpointError(f"{path}: damaged: it is no SentencePiece model") from error


def _object(path: Path) -> dict[str, Any]:
    return read_object(path, CheckpointError, "Download the folder again.")
