"""Transformers of fairseq: a checkpoint_*.pt beside dict.SOURCE.txt and dict.TARGET.txt.

fairseq's positions are sinusoids of other frequencies than ours, or learned, and begin in row 2 of
a table, after its padding id. The rows become learned positions. Its decoder starts with the end of
a sentence.
"""

from __future__ import annotations

import re
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nmt_cli.annexes.exchange.importing.assembly import (
    ForeignTransformer,
    Side,
    assembled,
    half_sinusoids,
    our_layers,
)
from nmt_cli.annexes.exchange.importing.checks import (
    LARGEST_TABLE,
    float_weights,
    is_language,
    our_settings,
    read_program,
)
from nmt_cli.annexes.exchange.importing.importers import Imported
from nmt_cli.annexes.exchange.importing.options import ImportOptions
from nmt_cli.errors import CheckpointError, UsageError, shown
from nmt_cli.files.text import read_lines
from nmt_cli.interfaces import EOS, SPECIAL_SYMBOLS

takes = "a checkpoint of a Transformer of fairseq (checkpoint_best.pt), beside its dict.*.txt"

_SPECIAL = ("<s>", "<pad>", "</s>", "<unk>")  # the first ids
_FIRST_POSITION = _SPECIAL.index("<pad>") + 1
_POSITIONS = 1024  # of a side, unless the options say otherwise
_PROGRAM = read_program(__file__)
NAMES: dict[str, str] = _PROGRAM["names"]
# Other architectures differ in more than size.
_ARCHITECTURES = re.compile(r"transformer(?!.*(?:_lm|monotonic|unidirectional))\w*")
# Copies of other weights, which fairseq 0.12 makes when it loads a checkpoint.
_COPIES = r"layers\.\d+\.(?:in_proj|out_proj|fc1|fc2)_(?:weight|bias)"
_UNREAD = re.compile(
    rf"\.(?:version|embed_positions\._float_tensor|embed_positions\.weights|{_COPIES})$"
)


def recognises(path: Path, saved: Mapping[str, Any]) -> bool:
    """See `importers.py`."""
    return "model" in saved and ("cfg" in saved or "args" in saved)


def read(path: Path, saved: Mapping[str, Any], options: ImportOptions) -> Imported:
    """See `importers.py`."""
    task, model = options_of(saved, path)
    settings = settings_of(saved, model, path)
    tensors = {name: t for name, t in saved["model"].items() if not _UNREAD.search(name)}
    weights = divided(float_weights(tensors, path))
    source_embedding = weights.pop("encoder.embed_tokens.weight")
    target_embedding = weights.pop("decoder.embed_tokens.weight")
    # Older versions have no output matrix if it is the embedding.
    output = weights.pop("decoder.embed_out", target_embedding)
    output = weights.pop("decoder.output_projection.weight", output)

    def side(name: str, language: Any, embedding: Tensor) -> Side:
        ids = dictionary(path.parent, language, len(embedding))
        positions = positions_of(name, model, weights, output.size(1), path)
        return Side(ids, embedding, ids[SPECIAL_SYMBOLS[EOS]], language, positions)

    source_lang = options.source_lang or task.get("source_lang")
    target_lang = options.target_lang or task.get("target_lang")
    source = side("encoder", source_lang, source_embedding)
    target = side("decoder", target_lang, target_embedding)
    transformer = ForeignTransformer(
        source,
        target,
        settings=settings,
        layers=our_layers(weights, NAMES, path),  # all other weights
        output=output,
        output_bias=torch.zeros(len(output)),
        scaled=not model.get("no_scale_embedding"),
    )
    return assembled(path, transformer, options)


def options_of(saved: Mapping[str, Any], path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return fairseq's options of the task and of the model.

    Raises:
        CheckpointError: the model is not a Transformer for translation.
    """
    sections = saved.get("cfg") or {"task": saved.get("args"), "model": saved.get("args")}
    task = _values(sections.get("task"))
    model = _values(sections.get("model"))
    for section in ("encoder", "decoder", "quant_noise"):  # in newer configurations
        if isinstance(model.get(section), Mapping):
            model |= {f"{section}_{name}": value for name, value in model[section].items()}
    kind = task.get("_name") or task.get("task")
    architecture = model.get("arch") or model.get("_name")
    if kind != "translation":
        raise CheckpointError(
            f"{path}: cannot be imported: its task is {shown(kind)}, expected 'translation'"
        )
    if not isinstance(architecture, str) or not _ARCHITECTURES.fullmatch(architecture):
        raise CheckpointError(
            f"{path}: cannot be imported: its architecture is {shown(architecture)}, not a "
            "transformer"
        )
    if not model.get("decoder_normalize_before"):
        model.pop("no_decoder_final_norm", None)  # post-norm has no final norm
    return task, model


def _values(options: Any) -> dict[str, Any]:
    if isinstance(options, Namespace):
        return dict(vars(options))
    if isinstance(options, Mapping):
        return dict(options)
    return {}


def settings_of(saved: Mapping[str, Any], model: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Return the settings of our Transformer that weights do not show.

    Raises:
        CheckpointError: our Transformer does not have one of the settings.
    """
    if saved.get("cfg"):  # all options that are not of the model have other sections
        others: set[str] = set()
        for section, values in saved["cfg"].items():
            if section != "model":
                others.update(_values(values))
        settings = our_settings(model, _PROGRAM, path, others, of_model=re.compile(""))
    else:
        settings = our_settings(model, _PROGRAM, path)
    dropout = model.get("activation_dropout") or model.get("relu_dropout") or 0.0
    return settings | {
        "norm": "pre" if settings["norm"] else "post",
        "attention_biases": True,
        "positions": "none",
        "feed_forward_dropout": dropout,
    }


def positions_of(
    side: str, model: Mapping[str, Any], weights: dict[str, Tensor], d_model: int, path: Path
) -> Tensor | None:
    """Return the positional encodings [positions, d_model] of encoder or decoder.

    Learned encodings leave `weights`.

    Raises:
        CheckpointError: there are too many positions.
    """
    if model.get("no_token_positional_embeddings"):
        return None
    table = f"{side}.embed_positions.weight"
    if table in weights or model.get(f"{side}_learned_pos"):
        return weights.pop(table)[_FIRST_POSITION:]
    name = "max_source_positions" if side == "encoder" else "max_target_positions"
    count = model.get(name) or _POSITIONS
    if type(count) is not int or not 0 < count * d_model <= LARGEST_TABLE:
        raise CheckpointError(
            f"{path}: cannot be imported: its {name} is {shown(count)}, expected at most "
            f"{LARGEST_TABLE // d_model}"
        )
    return half_sinusoids(_FIRST_POSITION, count, d_model)


def divided(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights with separate matrices of queries, keys and values.

    Older versions have one matrix for the three.
    """
    parts: dict[str, Tensor] = {}
    for name, tensor in weights.items():
        before, is_fused, kind = name.partition("in_proj_")
        if not is_fused:
            parts[name] = tensor
            continue
        for letter, part in zip("qkv", tensor.chunk(3), strict=True):
            parts[f"{before}{letter}_proj.{kind}"] = part
    return parts


def dictionary(folder: Path, language: Any, rows: int) -> dict[str, int]:
    """Return the ids of the entries of dict.LANGUAGE.txt.

    Args:
        rows: the number of embeddings.

    Raises:
        UsageError: the file is not there.
        CheckpointError: the file is damaged, or belongs to another model.
    """
    if not is_language(language):
        raise UsageError(
            f"{folder}: the checkpoint names no language, but {shown(language)}: give "
            "--source-lang and --target-lang"
        )
    path = folder / f"dict.{language}.txt"
    if not path.is_file():
        raise UsageError(
            f"{path}: missing. Copy it from the directory with the prepared data of fairseq"
        )
    words = []
    for number, line in enumerate(read_lines(path), 1):
        word, _, count = line.removesuffix(" #fairseq:overwrite").rpartition(" ")
        if not count.isdecimal():
            raise CheckpointError(
                f"{path}:{number}: expected an entry, a space and its count, found {shown(line)}"
            )
        words.append(word)
    expected = rows - len(_SPECIAL)
    if len(words) != expected:  # fairseq refuses it, too
        raise CheckpointError(
            f"{path}: damaged: expected {expected:,} entries, as the checkpoint has embeddings, "
            f"found {len(words):,}"
        )
    return {word: i for i, word in enumerate([*_SPECIAL, *words])}
