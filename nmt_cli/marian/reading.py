"""A MarianMTModel folder of Hugging Face Transformers, such as an OPUS-MT model, as a checkpoint of ours.

Its decoder starts with the padding symbol.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from nmt_cli import checkpoint, registry
from nmt_cli.checkpoint import Contents
from nmt_cli.config import flag, restored
from nmt_cli.data.subwords import LARGEST_FILE
from nmt_cli.errors import CheckpointError, UsageError
from nmt_cli.files.text import check_regular, fingerprint, read_object
from nmt_cli.importing.assembly import task_of
from nmt_cli.importing.checks import OFF, check_settings, float_weights, saved_objects
from nmt_cli.importing.entries import Entries, entries
from nmt_cli.importing.importers import Imported
from nmt_cli.importing.options import ImportOptions
from nmt_cli.interfaces import BOS, PAD, SPECIAL_SYMBOLS
from nmt_cli.marian.pieces import MarianPieces
from nmt_cli.marian.weights import OUTPUT, OUTPUT_BIAS, SETTINGS, SHARED, SIDES, layer_weights, marian_order, reordered

WEIGHTS = ("model.safetensors", "pytorch_model.bin")  # the first one there is read
_SUPPORTED: dict[str, tuple[Any, ...]] = {
    "model_type": ("marian",),
    "scale_embedding": (True,),
    "static_position_embeddings": (True, None),
    "tie_word_embeddings": (True, None),
    **dict.fromkeys(
        "add_cross_attention add_final_layer_norm is_decoder normalize_before normalize_embedding pruned_heads "
        "quantization_config tie_encoder_decoder".split(),
        OFF,
    ),
}
_OTHERS = (
    "_attn_implementation attn_implementation decoder_layerdrop decoder_start_token_id decoder_vocab_size "
    "encoder_layerdrop extra_pos_embeddings is_encoder_decoder max_position_embeddings num_attention_heads "
    "num_hidden_layers share_encoder_decoder_embeddings"
).split()
_TEXT = ("subwords", "target_subwords", "moses", "moses_escape", "lowercase")  # options of other importers

takes = "a folder of Hugging Face Transformers with a MarianMTModel, such as OPUS-MT's (hf download NAME)"


def recognises(path: Path, saved: Mapping[str, Any]) -> bool:
    """See `importers.py`."""
    config = path / "config.json"
    return config.is_file() and _object(config).get("model_type") == "marian"


def read(folder: Path, saved: Mapping[str, Any], options: ImportOptions) -> Imported:
    """See `importers.py`."""
    if given := [flag(name) for name in _TEXT if getattr(options, name)]:
        raise UsageError(f"{given[0]} cannot be used with {folder}, which has its own SentencePiece models")
    config = _object(folder / "config.json")
    settings = model_settings(config, folder / "config.json")
    weights_file = next((folder / name for name in WEIGHTS if (folder / name).is_file()), None)
    if weights_file is None:
        raise CheckpointError(f"{folder}: has no weights for PyTorch: expected {' or '.join(WEIGHTS)}")
    theirs, shared = load_weights(weights_file), bool(config.get("share_encoder_decoder_embeddings", True))
    embeddings = embeddings_of(theirs, shared, settings.d_model, folder)
    sides = entries_of(folder, config, [len(embedding) for embedding in embeddings])
    path = folder / "tokenizer_config.json"
    tokenizer = _object(path) if path.is_file() else {}
    languages = [tokenizer.get(name) for name in ("source_lang", "target_lang")]
    task = task_of(vocabularies_of(folder, sides), shared, languages, options)
    sections = {
        "model": {"name": "transformer", **dataclasses.asdict(settings)},
        "attention": {"name": "full"},
    }
    sizes = (task.source_vocabulary_size, task.target_vocabulary_size, task.shared_vocabulary)
    contents = Contents(sections, *sizes, step=0, run=fingerprint(weights_file)[:16])
    with torch.device("meta"):
        model = checkpoint.build_model(contents, str(folder))
    return Imported(contents, our_weights(theirs, model, embeddings, sides, folder), task)


def model_settings(config: Mapping[str, Any], path: Path) -> Any:
    """Return the configuration of our Transformer.

    Raises:
        CheckpointError: it cannot express the model.
    """
    check_settings(config, _SUPPORTED, {*_OTHERS, *chain.from_iterable(SETTINGS.values())}, path)
    settings: dict[str, Any] = {"attention_biases": True, "output_bias": True}
    for ours, names in SETTINGS.items():
        values = [config[name] for name in names if name in config]
        if any(value != values[0] for value in values):
            raise CheckpointError(f"{path}: cannot be imported: {' and '.join(names)} differ")
        if len(values) < len(names) and "dropout" not in ours:
            raise CheckpointError(f"{path}: damaged: it lacks {' or '.join(names)}")
        if values:
            settings[ours] = values[0]
    if settings.get("activation") == "silu":
        settings["activation"] = "swish"
    try:
        return restored(registry.find("model", "transformer").config, settings, str(path))
    except UsageError as error:
        raise CheckpointError(str(error)) from error


def load_weights(path: Path) -> dict[str, Tensor]:
    """Return the weights by Marian's names, in float32. Nothing is unpickled but tensors."""
    try:
        tensors = load_file(path) if path.suffix == ".safetensors" else saved_objects(path)
    except SafetensorError as error:
        raise CheckpointError(f"{path}: cannot read the weights: {error}") from error
    if not tensors:
        raise CheckpointError(f"{path}: cannot read the weights: the file is empty or damaged")
    return float_weights(tensors, path)


def embeddings_of(weights: Mapping[str, Tensor], shared: bool, width: int, folder: Path) -> list[Tensor]:
    """Return the embeddings of source and target. Tied weights are saved once, under any of their names."""
    names = [[SHARED, *SIDES, OUTPUT]] * 2 if shared else [SIDES[:1], [SIDES[1], OUTPUT]]
    found = [next((weights[name] for name in side if name in weights), None) for side in names]
    embeddings = [embedding for embedding in found if embedding is not None and embedding.shape[1:] == (width,)]
    if len(embeddings) < len(names):
        raise CheckpointError(f"{folder}: its weights lack embeddings of the width in config.json, {width}")
    return embeddings


def entries_of(folder: Path, config: Mapping[str, Any], sizes: Sequence[int]) -> list[Entries]:
    """Return the entries of source and target, whose embeddings have `sizes` rows."""
    shared, start = config.get("share_encoder_decoder_embeddings", True), config.get("decoder_start_token_id")
    source, target = folder / "vocab.json", folder / "target_vocab.json"
    if shared or not target.is_file():
        target = source
    vocab, target_vocab = _object(source), _object(target)
    if (folder / "added_tokens.json").is_file():
        added = _object(folder / "added_tokens.json")
        vocab |= added
        target_vocab |= added
    unused = start if shared else vocab.get(SPECIAL_SYMBOLS[BOS], vocab.get(SPECIAL_SYMBOLS[PAD]))
    return [entries(vocab, sizes[0], unused, source), entries(target_vocab, sizes[1], start, target)]


def our_weights(
    theirs: Mapping[str, Tensor], model: Any, embeddings: Sequence[Tensor], sides: Sequence[Entries], folder: Path
) -> dict[str, Tensor]:
    """Return the weights of our Transformer `model` by our names; its own are not read, only their shapes."""
    shapes = {name: parameter.shape for name, parameter in model.named_parameters()}
    order, (source, target) = marian_order(model.config.d_model).argsort(), sides  # Marian's feature for each of ours
    pairs = list(layer_weights(model.config.num_layers, model.config.decoder_layers))
    bias_shape = torch.Size([1, len(embeddings[1])])
    expected = {pair.theirs: shapes[pair.ours] for pair in pairs} | {OUTPUT_BIAS: bias_shape}
    theirs = {OUTPUT_BIAS: torch.zeros(bias_shape), **theirs}
    for name in [*expected, *(name for name in theirs if ".layers." in name)]:
        shapes_of_it = (theirs[name].shape if name in theirs else None, expected.get(name))
        if shapes_of_it[0] != shapes_of_it[1]:
            found, needed = ("missing" if shape is None else list(shape) for shape in shapes_of_it)
            raise CheckpointError(
                f"{folder}: its weights do not fit its config.json: {name} is {found}, expected {needed}"
            )
    weights = {pair.ours: reordered(theirs[pair.theirs], pair.axis, order) for pair in pairs}
    if embeddings[0] is not embeddings[1]:
        weights["source_embedding.weight"] = reordered(embeddings[0], 1, order)[source.rows]
    weights["target_embedding.weight"] = reordered(embeddings[1], 1, order)[target.rows]
    weights["output_bias"] = target.output_bias(theirs[OUTPUT_BIAS][0])
    return weights


def vocabularies_of(folder: Path, sides: Sequence[Entries]) -> list[MarianPieces]:
    """Return the vocabularies of source and target."""
    try:
        return [
            MarianPieces(side.pieces, _bytes(folder / name))
            for side, name in zip(sides, ("source.spm", "target.spm"), strict=True)
        ]
    except RuntimeError as error:
        raise CheckpointError(f"{folder}: damaged: source.spm or target.spm is no SentencePiece model") from error


def _object(path: Path) -> dict[str, Any]:
    return read_object(path, CheckpointError, "Download the folder again.")


def _bytes(path: Path) -> bytes:
    check_regular(path, LARGEST_FILE)
    return path.read_bytes()
