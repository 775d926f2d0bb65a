"""A checkpoint of what an importer found in another program's file."""

from __future__ import annotations

import codecs
import dataclasses
import math
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from nmt_cli import registry
from nmt_cli.annexes.exchange.importing.checks import is_language
from nmt_cli.annexes.exchange.importing.importers import Imported
from nmt_cli.annexes.exchange.importing.options import ImportOptions
from nmt_cli.annexes.exchange.importing.pieces import (
    ListedPieces,
    MergedPieces,
    SplitPieces,
    keep_whole,
)
from nmt_cli.annexes.exchange.importing.settings import ImportedTransformerConfig
from nmt_cli.checkpoint import Contents
from nmt_cli.config import flag, restored
from nmt_cli.data.subwords import LARGEST_FILE, WholeTokens
from nmt_cli.data.unicode import NONE
from nmt_cli.data.vocabulary import Vocabulary
from nmt_cli.errors import CheckpointError, DataError, UsageError, shown
from nmt_cli.files.text import check_regular, fingerprint
from nmt_cli.interfaces import BOS, EOS, PAD, SPECIAL_SYMBOLS, UNK
from nmt_cli.models.settings import TransformerConfig
from nmt_cli.streams import say, warn
from nmt_cli.weights import assign_weights, build_model

_ADDED = (
    ImportedTransformerConfig.__dataclass_fields__.keys()
    - TransformerConfig.__dataclass_fields__.keys()
)
_NUMBER = re.compile(r"\b\d+\b")
# Distance of BOS's logit below the symbol with the same embedding. e^-20 is less than float32 can
# tell.
BELOW = 20.0


class Side(NamedTuple):
    """The source or the target of a Transformer as another program has it."""

    ids: Mapping[str, int]  # of the entries of its vocabulary, with our names for special symbols
    embedding: Tensor  # [V, d_model]
    start: Any  # the id with which the decoder starts
    language: Any = None  # if the program names it
    positions: Tensor | None = None  # [positions, d_model], if they are not our sinusoids


@dataclasses.dataclass(frozen=True)
class ForeignTransformer:
    """A Transformer as another program has it."""

    source: Side
    target: Side
    # Of `ImportedTransformerConfig`, with the sizes that the program's settings name.
    settings: dict[str, Any]
    layers: dict[str, Tensor]  # the weights of layers and norms, by our names
    output: Tensor  # [V, d_model]
    output_bias: Tensor  # [V]
    scaled: bool = True  # embeddings are multiplied by sqrt(d_model)


def renamed(name: str, names: Mapping[str, str]) -> str:
    """Return the other name of a weight or a bias.

    Args:
        names: the other names of modules with a weight and a bias, with {} for the number of a
            layer.

    Raises:
        KeyError: `names` lacks its module.
    """
    module, _, kind = name.rpartition(".")
    numbers = _NUMBER.findall(module)
    pattern = names[_NUMBER.sub("{}", module)]
    return f"{pattern.format(*numbers)}.{kind}"


def our_layers(
    weights: Mapping[str, Tensor], names: Mapping[str, str], path: Path
) -> dict[str, Tensor]:
    """Return the weights of layers and norms by our names.

    Raises:
        CheckpointError: there are others, which our Transformer does not have.
    """
    layers = {}
    for name, weight in weights.items():
        try:
            layers[renamed(name, names)] = weight
        except KeyError as error:
            raise CheckpointError(
                f"{path}: cannot be imported: it has {name}, which nmt's Transformer does not have"
            ) from error
    return layers


def half_sinusoids(first: int, count: int, d_model: int) -> Tensor:
    """Return the encodings [count, d_model] of tensor2tensor for positions from `first` on.

    All sines stand before all cosines, and wavelengths go from 2 pi to exactly 10000 * 2 pi, unlike
    in section 3.5.
    """
    half = d_model // 2
    step = math.log(10000) / max(half - 1, 1)
    rates = torch.exp(torch.arange(half, dtype=torch.float) * -step)
    positions = torch.arange(first, first + count, dtype=torch.float)
    angles = positions[:, None] * rates  # [count, half]
    encodings = torch.cat([angles.sin(), angles.cos()], 1)
    return torch.nn.functional.pad(encodings, (0, d_model % 2))


class Entries(NamedTuple):
    """The vocabulary of a side, in the order of our ids."""

    pieces: list[str]
    rows: Tensor  # the id of each in the other program: [V]
    bos_is_copied: bool  # BOS is another symbol in the other program


def entries(side: Side, path: Path) -> Entries:
    """Return the vocabulary of a side.

    Our ids begin with PAD, UNK, BOS and EOS. The other entries follow in their order. Where the
    decoder starts with another symbol than BOS, BOS gets the embedding of that symbol, and a logit
    with which it is never chosen.

    Raises:
        CheckpointError: a special symbol is missing, or ids are not those of different pieces.
    """
    # Raises an error that the importer's caller reports, unless all are text.
    "".join(side.ids).encode()
    size = len(side.embedding)
    ids = list(side.ids.values())
    all_have_rows = all(type(i) is int and 0 <= i < size for i in [*ids, side.start])
    if not all_have_rows or len(set(ids)) < len(ids):
        raise CheckpointError(
            f"{path}: damaged: expected different ids below {size} for all entries of its "
            "vocabulary and for the first symbol of outputs"
        )
    for i in (PAD, UNK, EOS):
        if SPECIAL_SYMBOLS[i] not in side.ids:
            raise CheckpointError(f"{path}: its vocabulary has no {SPECIAL_SYMBOLS[i]}")
    rows = [side.ids.get(symbol) for symbol in SPECIAL_SYMBOLS]
    bos_is_copied = rows[BOS] != side.start
    rows[BOS] = side.start
    taken = {rows[PAD], rows[UNK], rows[EOS]}
    if not bos_is_copied:  # otherwise the other symbol is an entry, too
        taken.add(rows[BOS])
    pieces = list(SPECIAL_SYMBOLS)
    names = {i: piece for piece, i in side.ids.items() if piece not in SPECIAL_SYMBOLS}
    for row in range(size):
        if row not in taken:
            pieces.append(names.get(row, f"<unnamed {row}>"))
            rows.append(row)
    return Entries(pieces, torch.tensor(rows), bos_is_copied)


def vocabulary_of(pieces: Sequence[str], file: Path | None) -> Vocabulary:
    """Return the vocabulary of text that `file` splits into `pieces`, or that is split already.

    Raises:
        UsageError: it is neither a SentencePiece model nor codes of subword-nmt, or it splits into
            other pieces.
    """
    if file is None:
        return WholeTokens(pieces)
    try:
        check_regular(file, LARGEST_FILE)
        content = file.read_bytes()
        if content.removeprefix(codecs.BOM_UTF8).startswith(b"#version"):
            return MergedPieces(pieces, content.decode("utf-8-sig").replace("\r\n", "\n"))
        return ListedPieces(pieces, content)
    except DataError as error:
        raise UsageError(f"--subwords {file}: {error}") from error
    except (RuntimeError, UnicodeDecodeError) as error:
        raise UsageError(
            f"--subwords {file}: expected a SentencePiece model or subword-nmt's codes"
        ) from error


def assembled(
    path: Path,
    model: ForeignTransformer,
    options: ImportOptions,
    make_vocabulary: Callable[[Sequence[str], Any], Vocabulary] = vocabulary_of,
) -> Imported:
    """Return the checkpoint of the model in `path`.

    Args:
        make_vocabulary: returns the vocabulary of a side with these pieces and with this `subwords`
            of `options`.

    Raises:
        UsageError: a language is neither given nor known, or a file of subwords does not fit.
        CheckpointError: the weights do not fit a Transformer of ours.
    """
    source = entries(model.source, path)
    target = entries(model.target, path)
    shared = source.pieces == target.pieces and model.source.embedding.equal(model.target.embedding)
    target_subwords = options.target_subwords or options.subwords
    task = _task(
        make_vocabulary(source.pieces, options.subwords),
        make_vocabulary(target.pieces, target_subwords),
        shared,
        model,
        options,
    )
    weights = our_weights(model, source, target, shared)
    contents = Contents(
        {"model": _model_section(model, weights, path), "attention": {"name": "full"}},
        task.source_vocabulary_size,
        task.target_vocabulary_size,
        task.shared_vocabulary,
        step=0,
        run=fingerprint(path)[:16],
    )
    with torch.device("meta"):  # checks the weights without memory for them
        assign_weights(build_model(contents, str(path)), weights, str(path))
    return Imported(contents, weights, task)


def our_weights(
    model: ForeignTransformer, source: Entries, target: Entries, shared: bool
) -> dict[str, Tensor]:
    """Return the weights by our names, with their rows in the order of our ids."""
    scale = 1.0
    if not model.scaled:
        scale = math.sqrt(model.output.size(1))
    embedding = model.target.embedding[target.rows] / scale
    output = model.output[target.rows]
    bias = model.output_bias[target.rows]
    if target.bos_is_copied:
        bias[BOS] -= BELOW
    weights = {**model.layers, "target_embedding.weight": embedding, "output_bias": bias}
    if not shared:
        weights["source_embedding.weight"] = model.source.embedding[source.rows] / scale
    if not output.equal(embedding):
        weights["separate_output"] = output
    if model.source.positions is not None and model.target.positions is not None:
        tables = {"source": model.source.positions, "target": model.target.positions}
        longest = max(len(table) for table in tables.values())
        for side, table in tables.items():
            last_rows = table[-1:].expand(longest - len(table), -1)
            weights[f"{side}_positions.weight"] = torch.cat([table, last_rows])
    return weights


def _model_section(
    model: ForeignTransformer, weights: Mapping[str, Tensor], path: Path
) -> dict[str, Any]:
    """Return the settings of the model, which is the paper's Transformer if that can express it.

    Raises:
        CheckpointError: there is no such Transformer.
    """
    layers = {tuple(name.split(".")[:2]) for name in model.layers}  # such as ("encoder", "0")
    sides = [side for side, _ in layers]
    settings = {
        "d_model": model.output.size(1),
        "d_ff": len(weights["encoder.0.feed_forward.inner.weight"]),
        "num_layers": sides.count("encoder"),
        "num_decoder_layers": sides.count("decoder"),
        **model.settings,
        "output_bias": True,
    }
    if "separate_output" in weights:
        settings["separate_output"] = True
    if "source_positions.weight" in weights:
        settings["positions"] = "learned"
        settings["max_positions"] = len(weights["source_positions.weight"])
    name = "transformer"
    config_type = TransformerConfig
    if _ADDED & settings.keys():
        name = "imported_transformer"
        config_type = ImportedTransformerConfig
    try:
        config = restored(config_type, settings, str(path))
    except UsageError as error:
        raise CheckpointError(str(error)) from error
    return {"name": name, **dataclasses.asdict(config)}


def _task(
    source: Vocabulary,
    target: Vocabulary,
    shared: bool,
    model: ForeignTransformer,
    options: ImportOptions,
) -> Any:
    """Return the task of translation with the vocabularies of source and target.

    Args:
        shared: whether one matrix serves both.

    Raises:
        UsageError: a language is neither given nor named by the model's file.
    """
    split = [pieces for pieces in (source, target) if isinstance(pieces, SplitPieces)]
    whole = keep_whole(split)
    component = registry.find("task", "translation")
    symbols: dict[str, Any] = {}
    if "symbols" in component.config.__dataclass_fields__:
        # --moses and --lowercase leave symbols alone.
        tags = [name for name in whole if re.fullmatch(r"<[^<>\s,\u2581]+>", name)]
        symbols = {"symbols": ",".join(tags), "generate_symbols": bool(tags)}
    config = component.config(
        source_lang=_language(options, "source_lang", model.source.language),
        target_lang=_language(options, "target_lang", model.target.language),
        moses=options.moses,
        moses_escape=options.moses_escape,
        lowercase=options.lowercase,
        **symbols,
        subwords=source.kind,
        normalization=NONE,  # a SentencePiece model has its own rule
        vocab_size=len(target),
        separate_vocabularies=not shared,
    )
    task = component.build(config)
    if source.serialise() == target.serialise():
        target = source
    task.set_vocabularies(source, target)
    if whole:
        say(
            "entries that no file of subwords makes; as words of a line, they are kept whole: "
            f"{shown(whole, 200)}"
        )
        changed = []
        for entry in split[0].whole:
            if task.source_tokens(task.encode_source(entry)) != [entry]:
                changed.append(entry)
        if changed:
            warn(
                f"of these, --moses or --lowercase changes {shown(changed, 200)}: prepare text "
                "yourself, without them"
            )
    return task


def _language(options: ImportOptions, name: str, of_model: Any) -> str:
    """Return the language that the option `name` gives, or the language that the model names."""
    language = getattr(options, name) or of_model
    if not is_language(language):
        raise UsageError(
            f"{options.path} names no {name}: give {flag(name)}, the ending of your files, as de "
            "in train.de"
        )
    return str(language)
