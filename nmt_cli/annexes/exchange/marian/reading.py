"""A MarianMTModel of Hugging Face Transformers, such as an OPUS-MT model, as our checkpoint.

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

takes = (
    "a folder of Hugging Face Transformers with a MarianMTModel, such as OPUS-MT's "
    "(hf download NAME)"
)


def recognises(path: Path, saved: Mapping[str, Any]) -> bool:
    """See `importers.py`."""
    config = path / "config.json"
    return config.is_file() and _object(config).get("model_type") == "marian"


def read(folder: Path, saved: Mapping[str, Any], options: ImportOptions) -> Imported:
    """See `importers.py`."""
    for name in _TEXT:
        if getattr(options, name):
            raise UsageError(
                f"{flag(name)} cannot be used with {folder}, which has its own SentencePiece models"
            )
    config = _object(folder / "config.json")
    settings = our_settings(config, PROGRAM, folder / "config.json")
    settings["attention_biases"] = True
    if settings["activation"] == "silu":
        settings["activation"] = "swish"
    weights_file = weights_file_of(folder)
    weights = load_weights(weights_file)
    shared = config.get("share_encoder_decoder_embeddings", True)
    source_embedding, target_embedding = embeddings_of(weights, shared, folder)
    source_ids, target_ids = vocabularies_of(folder, shared)
    start = config.get("decoder_start_token_id")
    source_start = start
    if not shared:
        padding = source_ids.get(SPECIAL_SYMBOLS[PAD])
        source_start = source_ids.get(SPECIAL_SYMBOLS[BOS], padding)
    tokenizer = _object_if_any(folder / "tokenizer_config.json")
    layers = our_layers(
        {name: weight for name, weight in weights.items() if ".layers." in name},
        NAMES,
        weights_file,
    )
    output_bias = torch.zeros(len(target_embedding))
    if OUTPUT_BIAS in weights:
        output_bias = weights[OUTPUT_BIAS][0]
    model = ForeignTransformer(
        source=Side(source_ids, source_embedding, source_start, tokenizer.get("source_lang")),
        target=Side(target_ids, target_embedding, start, tokenizer.get("target_lang")),
        settings=settings,
        layers={name: marian_to_ours(name, weight) for name, weight in layers.items()},
        output=target_embedding,
        output_bias=output_bias,
    )
    models = replace(options, subwords=folder / "source.spm", target_subwords=folder / "target.spm")
    return assembled(weights_file, model, models, pieces_of)


def weights_file_of(folder: Path) -> Path:
    """Return the file of the weights."""
    for name in WEIGHTS:
        if (folder / name).is_file():
            return folder / name
    raise CheckpointError(f"{folder}: has no weights for PyTorch: expected {' or '.join(WEIGHTS)}")


def load_weights(path: Path) -> dict[str, Tensor]:
    """Return the weights by Marian's names, in float32. Nothing is unpickled but tensors."""
    try:
        tensors = load_file(path) if path.suffix == ".safetensors" else saved_objects(path)
    except SafetensorError as error:
        raise CheckpointError(f"{path}: cannot read the weights: {error}") from error
    if not tensors:
        raise CheckpointError(f"{path}: cannot read the weights: the file is empty or damaged")
    return float_weights(tensors, path)


def embeddings_of(
    weights: Mapping[str, Tensor], shared: bool, folder: Path
) -> tuple[Tensor, Tensor]:
    """Return the embeddings of source and target, with their features in our order."""
    if shared:
        embedding = _embedding(weights, [SHARED, *SIDES, OUTPUT], folder)
        return embedding, embedding
    source, target = SIDES
    return _embedding(weights, [source], folder), _embedding(weights, [target, OUTPUT], folder)


def _embedding(weights: Mapping[str, Tensor], names: Sequence[str], folder: Path) -> Tensor:
    """Return an embedding, which is saved under one of these names."""
    for name in names:
        if name in weights:
            return marian_to_ours("embedding.weight", weights[name])
    raise CheckpointError(f"{folder}: its weights lack {' and '.join(names)}")


def vocabularies_of(folder: Path, shared: bool) -> tuple[dict[str, int], dict[str, int]]:
    """Return the ids of the entries of source and target."""
    source = folder / "vocab.json"
    target = folder / "target_vocab.json"
    if shared or not target.is_file():
        target = source
    added = _object_if_any(folder / "added_tokens.json")
    return _object(source) | added, _object(target) | added


def pieces_of(pieces: Sequence[str], path: Path) -> MarianPieces:
    """Return the vocabulary of the pieces that the SentencePiece model in `path` makes."""
    check_regular(path, LARGEST_FILE)
    try:
        return MarianPieces(pieces, path.read_bytes())
    except RuntimeError as error:
        raise CheckpointError(f"{path}: damaged: it is no SentencePiece model") from error


def _object(path: Path) -> dict[str, Any]:
    return read_object(path, CheckpointError, "Download the folder again.")


def _object_if_any(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    return _object(path)
