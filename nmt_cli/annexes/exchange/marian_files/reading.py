"""Transformers in Marian's own files: model.npz, its configuration and its vocabularies.

The decoder's first input is a vector of zeros instead of a symbol, and there is no padding symbol,
so both are added. The encodings have all sines before all cosines.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
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
from nmt_cli.data.subwords import LARGEST_FILE
from nmt_cli.errors import CheckpointError, UsageError
from nmt_cli.files.settings import from_yaml, read_settings
from nmt_cli.files.text import check_regular
from nmt_cli.interfaces import BOS, PAD, SPECIAL_SYMBOLS

takes = "a model of Marian (model.npz, beside model.npz.decoder.yml and its vocabularies)"

_PROGRAM = read_program(__file__)
_POSITIONS = 5000  # rows of its encodings
_OF_MODEL = re.compile("^(transformer|input|lemma|factors)-")
_NEVER = -1e4  # a bias with which a symbol is not chosen, and which float16 has
# Ends of names: modules as other toolkits name them.
_ENDS = {
    r"_W(\w)$": r"_\1.weight",
    r"_b(\w)$": r"_\1.bias",
    "_ln_scale(_pre)?$": ".weight",
    "_ln_bias(_pre)?$": ".bias",
}


def recognises(path: Path, saved: Mapping[str, Any]) -> bool:
    """See `importers.py`."""
    return path.is_file() and path.suffix in (".npz", ".yml")


def read(path: Path, saved: Mapping[str, Any], options: ImportOptions) -> Imported:
    """See `importers.py`."""
    configuration = path if path.suffix == ".yml" else Path(f"{path}.decoder.yml")
    decoder = read_settings(configuration)
    names = [*decoder.get("models", [])[:1], *decoder.get("vocabs", [])]
    if len(names) != 3:
        raise CheckpointError(
            f"{configuration}: needs models and two vocabs, as Marian writes it beside a model"
        )
    if path == configuration:
        path = _found(names[0], configuration)
    source_path, target_path = (_found(name, configuration) for name in names[1:])
    if not zipfile.is_zipfile(path):
        raise CheckpointError(f"{path}: damaged, or no model of Marian: copy it again")
    with np.load(path, allow_pickle=False) as archive:
        arrays = dict(archive)
    if "special:model.yml" not in arrays:
        raise CheckpointError(f"{path}: has no special:model.yml, which Marian writes into a model")
    model = from_yaml(arrays.pop("special:model.yml").tobytes().decode().rstrip("\0"))
    settings = our_settings(model, _PROGRAM, path, of_model=_OF_MODEL) | _norm(model, path)
    weights = float_weights({name: torch.from_numpy(a) for name, a in arrays.items()}, path)
    shared = weights.pop("Wemb", torch.empty(0, 1))  # or each side has its own
    source = _side(source_path, weights.pop("encoder_Wemb", shared))
    target = _side(target_path, weights.pop("decoder_Wemb", shared))
    output = target.embedding
    if "decoder_ff_logit_out_Wt" in weights:
        output = _with_two_rows(weights.pop("decoder_ff_logit_out_Wt"))
    bias = torch.full([len(output)], _NEVER)
    bias[:-2] = weights.pop("decoder_ff_logit_out_b", torch.zeros(1, 1))[0]
    layers = {}
    for name, weight in weights.items():  # matrices, and vectors of one row
        layers[_module(name)] = weight[0] if len(weight) == 1 else weight.T.contiguous()
    transformer = ForeignTransformer(
        source,
        target,
        settings=settings,
        layers=our_layers(layers, _PROGRAM["names"], path),
        output=output,
        output_bias=bias,
    )
    if source_path.suffix == ".spm":
        if options.subwords or options.target_subwords:
            raise UsageError(f"--subwords cannot be used with {source_path}, which splits the text")
        options = replace(options, subwords=source_path, target_subwords=target_path)
    return assembled(path, transformer, options)


def _found(name: str, configuration: Path) -> Path:
    """Return a file that the configuration names. It may have moved with the configuration."""
    for path in (Path(name), configuration.parent / Path(name).name):
        if path.is_file():
            return path
    raise CheckpointError(f"{configuration}: names {name}, which is not a file")


def _norm(model: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Return the place of the layer normalisation.

    Raises:
        CheckpointError: it is neither before each sub-layer nor after it.
    """
    before, after = ("n" in model[f"transformer-{place}process"] for place in ("pre", "post"))
    if before == after:
        raise CheckpointError(
            f"{path}: cannot be imported: its transformer-preprocess and transformer-postprocess "
            "do not have one normalisation"
        )
    return {"norm": "pre" if before else "post", "norm_epsilon": 1e-6, "attention_biases": True}


def _side(vocabulary: Path, embedding: Tensor) -> Side:
    size = len(embedding)
    ids = {entry: i for entry, i in _ids(vocabulary).items() if i < size}
    ids |= {SPECIAL_SYMBOLS[PAD]: size, SPECIAL_SYMBOLS[BOS]: size + 1}
    positions = half_sinusoids(0, _POSITIONS, embedding.size(1))
    return Side(ids, _with_two_rows(embedding), size + 1, positions=positions)


def _with_two_rows(matrix: Tensor) -> Tensor:
    """Return a matrix with rows of zeros for padding and the start."""
    return torch.nn.functional.pad(matrix, (0, 0, 0, 2))


def _ids(path: Path) -> dict[str, int]:
    """Return the ids of the entries of a vocabulary.

    Raises:
        CheckpointError: it is of another kind.
    """
    check_regular(path, LARGEST_FILE)
    if path.suffix == ".spm":
        import sentencepiece

        model = sentencepiece.SentencePieceProcessor(model_file=str(path))
        return {model.id_to_piece(i): i for i in range(model.get_piece_size())}
    if path.suffix not in (".yml", ".yaml", ".json"):
        raise CheckpointError(
            f"{path}: cannot be imported: expected a vocabulary in .spm, .yml or .json"
        )
    import yaml

    # With this loader, entries such as 1 and true stay text. It reads JSON, too.
    loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
    entries = yaml.load(path.read_text(encoding="utf-8"), Loader=loader)
    return {entry: int(i) for entry, i in entries.items()}


def _module(name: str) -> str:
    """Return a name with dots, as encoder.0.self_q.weight for encoder_l1_self_Wq."""
    for end, dotted in _ENDS.items():
        name = re.sub(end, dotted, name)
    return re.sub(r"_l(\d+)_", lambda number: f".{int(number[1]) - 1}.", name)
