"""A checkpoint of what an importer found in another program's file."""

from __future__ import annotations

import codecs
import dataclasses
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from nmt_cli import checkpoint, registry
from nmt_cli.annexes.exchange.importing.checks import is_language
from nmt_cli.annexes.exchange.importing.entries import Entries, entries
from nmt_cli.annexes.exchange.importing.importers import Imported
from nmt_cli.annexes.exchange.importing.options import ImportOptions
from nmt_cli.annexes.exchange.importing.pieces import ListedPieces, MergedPieces, SplitPieces, keep_whole
from nmt_cli.annexes.exchange.importing.settings import ImportedTransformerConfig
from nmt_cli.checkpoint import Contents
from nmt_cli.config import flag, restored
from nmt_cli.data.subwords import LARGEST_FILE, WholeTokens
from nmt_cli.data.unicode import NONE
from nmt_cli.data.vocabulary import Vocabulary
from nmt_cli.errors import CheckpointError, DataError, UsageError, shown
from nmt_cli.files.text import check_regular, fingerprint
from nmt_cli.models.settings import TransformerConfig
from nmt_cli.streams import say, warn

_SIDES = ("encoder", "decoder")
_ADDED = ImportedTransformerConfig.__dataclass_fields__.keys() - TransformerConfig.__dataclass_fields__.keys()
_DEFAULTS = dataclasses.asdict(ImportedTransformerConfig())


@dataclasses.dataclass(frozen=True)
class Found:
    """A Transformer as another program has it. Source comes before target."""

    settings: dict[str, Any]  # of `ImportedTransformerConfig`, with the sizes that the program's settings name
    names: Mapping[str, str]  # by our name of a weight of a layer or a norm: the name there
    weights: Mapping[str, Tensor]  # by the name there, without the following ones
    embeddings: Sequence[Tensor]  # [V, d_model] of each side
    output: Tensor  # [V, d_model]
    output_bias: Tensor  # [V]
    vocabularies: Sequence[Mapping[str, int]]  # the ids there, with our names for special symbols
    starts: Sequence[Any]  # the id there with which the decoder starts, in each vocabulary
    languages: Sequence[str | None] = (None, None)
    scaled: bool = True  # embeddings are multiplied by sqrt(d_model)
    positions: Sequence[Tensor] | None = None  # [positions, d_model] of each side, if they are not sinusoids of ours


class Stack(NamedTuple):
    """The encoder or the decoder there: its name, where its layers are, and their parts by our names."""

    side: str
    layers: str
    parts: Mapping[str, str]

    def names(self, numbers: Iterable[Any]) -> dict[str, str]:
        """Return the names there of all weights and biases of the layers with these numbers, by our names."""
        return {
            f"{self.side}.{number}.{ours}.{kind}": f"{self.layers}.{number}.{theirs}.{kind}"
            for number in numbers
            for ours, theirs in self.parts.items()
            for kind in ("weight", "bias")
        }


def read_stacks(module: str) -> list[Stack]:
    """Return the encoder and the decoder in layers.json, beside the file `module`."""
    return [Stack(**stack) for stack in json.loads(Path(module).with_name("layers.json").read_text(encoding="utf-8"))]


def names_of(stacks: Iterable[Stack], weights: Mapping[str, Tensor]) -> dict[str, str]:
    """Return the names there of all weights and biases of the layers in `weights` and of the last norms, by ours."""
    names: dict[str, str] = {}
    for stack in stacks:
        start = f"{stack.layers}."
        names |= stack.names({name[len(start) :].partition(".")[0] for name in weights if name.startswith(start)})
        names |= {f"{stack.side}_norm.{kind}": f"{stack.side}.layer_norm.{kind}" for kind in ("weight", "bias")}
    return names


def half_sinusoids(first: int, count: int, d_model: int) -> Tensor:
    """Return the encodings of tensor2tensor for `count` positions from `first` on: [count, d_model].

    All sines stand before all cosines, and wavelengths go from 2 pi to exactly 10000 * 2 pi, unlike in section 3.5.
    """
    half = d_model // 2
    rates = torch.exp(torch.arange(half, dtype=torch.float) * -(math.log(10000) / max(half - 1, 1)))
    angles = torch.arange(first, first + count, dtype=torch.float)[:, None] * rates
    return torch.nn.functional.pad(torch.cat([angles.sin(), angles.cos()], 1), (0, d_model % 2))


def vocabulary_of(pieces: Sequence[str], file: Path | None) -> Vocabulary:
    """Return the vocabulary of text that `file` splits into `pieces`, or that is split already.

    Raises:
        UsageError: it is neither a SentencePiece model nor codes of subword-nmt, or it splits into other pieces.
    """
    if file is None:
        return WholeTokens(pieces)
    try:
        check_regular(file, LARGEST_FILE)
        content = file.read_bytes()
        if content.removeprefix(codecs.BOM_UTF8).startswith(b"#version"):
            return MergedPieces(pieces, content.decode("utf-8-sig").replace("\r\n", "\n"))
        return ListedPieces(pieces, content)
    except (DataError, RuntimeError, UnicodeDecodeError) as error:
        problem = (
            str(error) if isinstance(error, DataError) else "expected a SentencePiece model or subword-nmt's codes"
        )
        raise UsageError(f"--subwords {file}: {problem}") from error


def assembled(
    path: Path,
    found: Found,
    options: ImportOptions,
    make_vocabulary: Callable[[Sequence[str], Any], Vocabulary] = vocabulary_of,
) -> Imported:
    """Return the checkpoint of what was found in `path`.

    Args:
        make_vocabulary: returns the vocabulary of a side with these pieces and with this `subwords` of `options`.

    Raises:
        UsageError: a language is neither given nor known, or a file of subwords does not fit.
        CheckpointError: the weights do not fit a Transformer of ours.
    """
    sides = [
        entries(vocab, len(embedding), start, path)
        for vocab, embedding, start in zip(found.vocabularies, found.embeddings, found.starts, strict=True)
    ]
    shared = sides[0].pieces == sides[1].pieces and found.embeddings[0].equal(found.embeddings[1])
    files = (options.subwords, options.target_subwords or options.subwords)
    vocabularies = [make_vocabulary(side.pieces, file) for side, file in zip(sides, files, strict=True)]
    task = task_of(vocabularies, shared, found.languages, options)
    weights = our_weights(found, sides, task.shared_vocabulary, path)
    sections = {"model": _model_section(found, weights, path), "attention": {"name": "full"}}
    sizes = (task.source_vocabulary_size, task.target_vocabulary_size, task.shared_vocabulary)
    contents = Contents(sections, *sizes, step=0, run=fingerprint(path)[:16])
    with torch.device("meta"):
        checkpoint.assign_weights(checkpoint.build_model(contents, str(path)), weights, str(path))
    return Imported(contents, weights, task)


def our_weights(found: Found, sides: Sequence[Entries], shared: bool, path: Path) -> dict[str, Tensor]:
    """Return the weights by our names.

    Raises:
        CheckpointError: there are others, which our Transformer does not have.
    """
    if others := sorted(found.weights.keys() - {*found.names.values()}):
        raise CheckpointError(f"{path}: cannot be imported: it has {others[0]}, which nmt's Transformer does not have")
    weights = {ours: found.weights[theirs] for ours, theirs in found.names.items() if theirs in found.weights}
    scale = 1.0 if found.scaled else math.sqrt(found.output.size(1))
    source, target = (each[side.rows] / scale for each, side in zip(found.embeddings, sides, strict=True))
    weights["target_embedding.weight"] = target
    if not shared:
        weights["source_embedding.weight"] = source
    output = found.output[sides[1].rows]
    if not output.equal(target):
        weights["separate_output"] = output
    weights["output_bias"] = sides[1].output_bias(found.output_bias)
    if found.positions:
        rows = max(map(len, found.positions))
        for side, table in zip(("source", "target"), found.positions, strict=True):
            weights[f"{side}_positions.weight"] = torch.cat([table, table[-1:].expand(rows - len(table), -1)])
    return weights


def _model_section(found: Found, weights: Mapping[str, Tensor], path: Path) -> dict[str, Any]:
    """Return the settings of the model, which is the paper's Transformer if that can express it.

    Raises:
        CheckpointError: a size in the settings there is not that of the weights, or there is no such Transformer.
    """
    layers = {side: len({name.split(".")[1] for name in weights if name.startswith(f"{side}.")}) for side in _SIDES}
    inner = (weight.size(0) for name, weight in weights.items() if name.endswith("feed_forward.inner.weight"))
    sizes = {
        "d_model": found.output.size(1),
        "d_ff": next(inner, 0),
        "num_layers": layers["encoder"],
        "num_decoder_layers": layers["decoder"],
    }
    settings = {**sizes, **found.settings, "output_bias": True, "separate_output": "separate_output" in weights}
    if found.positions:
        settings |= {"positions": "learned", "max_positions": len(weights["source_positions.weight"])}
    try:
        config = restored(ImportedTransformerConfig, settings, str(path))
    except UsageError as error:
        raise CheckpointError(str(error)) from error
    values = dataclasses.asdict(config)
    for name, size in sizes.items():
        if values[name] != size:
            sizes_of_it = f"{name} is {size} in the weights, and {values[name]} there"
            raise CheckpointError(f"{path}: its weights do not fit its settings: {sizes_of_it}")
    if all(values[name] == _DEFAULTS[name] for name in _ADDED):
        return {"name": "transformer"} | {name: value for name, value in values.items() if name not in _ADDED}
    return {"name": "imported_transformer", **values}


def task_of(vocabularies: Sequence[Vocabulary], shared: bool, languages: Sequence[Any], options: ImportOptions) -> Any:
    """Return the task of translation with the vocabularies of source and target.

    Args:
        shared: whether one matrix serves both.
        languages: source and target, if the file names them.

    Raises:
        UsageError: a language is neither given nor named.
    """
    names = {}
    for name, named in zip(("source_lang", "target_lang"), languages, strict=True):
        names[name] = getattr(options, name) or named
        if not is_language(names[name]):
            raise UsageError(
                f"{options.path} names no {name}: give {flag(name)}, the ending of your files, as de in train.de"
            )
    source, target = vocabularies
    text = {name: getattr(options, name) for name in ("moses", "moses_escape", "lowercase")}
    split = [vocabulary for vocabulary in vocabularies if isinstance(vocabulary, SplitPieces)]
    whole = keep_whole(split)
    component = registry.find("task", "translation")
    symbols = {}
    if "symbols" in component.config.__dataclass_fields__:  # --moses and --lowercase leave symbols alone
        tags = [name for name in whole if re.fullmatch(r"<[^<>\s,\u2581]+>", name)]
        symbols = {"symbols": ",".join(tags), "generate_symbols": bool(tags)}
    config = component.config(
        **names,
        **text,
        **symbols,
        subwords=source.kind,
        normalization=NONE,  # a SentencePiece model has a rule of its own
        vocab_size=len(target),
        separate_vocabularies=not shared,
    )
    task = component.build(config)
    task.set_vocabularies(source, source if source.serialise() == target.serialise() else target)
    if whole:
        say(f"entries that no file of subwords makes; as words of a line, they are kept whole: {shown(whole, 200)}")
        changed = [name for name in split[0].whole if task.source_tokens(task.encode_source(name)) != [name]]
        if changed:
            warn(f"of these, --moses or --lowercase changes {shown(changed, 200)}: prepare text yourself, without them")
    return task
