"""Transformers of fairseq: a checkpoint_*.pt beside dict.SOURCE.txt and dict.TARGET.txt.

fairseq's positions are sinusoids of other frequencies than ours, or learned, and begin in row 2 of a table, after its
padding id. The rows become learned positions. Its decoder starts with the end of a sentence.
"""

from __future__ import annotations

import re
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nmt_cli.errors import CheckpointError, UsageError, shown
from nmt_cli.files.text import read_lines
from nmt_cli.importing.assembly import Found, Stack, assembled, half_sinusoids
from nmt_cli.importing.checks import LARGEST_TABLE, OFF, check_settings, float_weights, is_language
from nmt_cli.importing.importers import Imported
from nmt_cli.importing.options import ImportOptions
from nmt_cli.interfaces import EOS, SPECIAL_SYMBOLS

takes = "a checkpoint of a Transformer of fairseq (checkpoint_best.pt), beside its dict.*.txt"

_SPECIAL = ("<s>", "<pad>", "</s>", "<unk>")  # the first ids
_FIRST_POSITION = _SPECIAL.index("<pad>") + 1
_POSITIONS = 1024  # of a side, unless the options say otherwise
_ENCODER = {
    **{f"self_attention.w_{letter}": f"self_attn.{letter}_proj" for letter in "qkv"},
    "self_attention.w_o": "self_attn.out_proj",
    "around_self_attention.norm": "self_attn_layer_norm",
    "feed_forward.inner": "fc1",
    "feed_forward.outer": "fc2",
    "around_feed_forward.norm": "final_layer_norm",
}
_DECODER = {
    **_ENCODER,
    **{f"cross_attention.w_{letter}": f"encoder_attn.{letter}_proj" for letter in "qkv"},
    "cross_attention.w_o": "encoder_attn.out_proj",
    "around_cross_attention.norm": "encoder_attn_layer_norm",
}
_STACKS = (Stack("encoder", "encoder.layers", _ENCODER), Stack("decoder", "decoder.layers", _DECODER))
_SUPPORTED: dict[str, tuple[Any, ...]] = {
    "activation_fn": ("relu", "gelu", "swish", None),
    **dict.fromkeys(
        "adaptive_input adaptive_softmax_cutoff base_layers char_inputs cross_self_attention decoder_layers_to_keep "
        "decoder_xformers_att_config encoder_layers_to_keep encoder_xformers_att_config layernorm_embedding "
        "no_cross_attention no_decoder_final_norm quant_noise_scalar scale_attn scale_fc scale_heads "
        "scale_resids".split(),
        OFF,
    ),
}
_OTHERS = (
    "_name activation_dropout adaptive_softmax_dropout adaptive_softmax_factor alignment_heads alignment_layer arch "
    "attention_dropout base_shuffle base_sublayers bpe checkpoint_activations clip_norm criterion decoder "
    "decoder_attention_heads decoder_embed_dim decoder_embed_path decoder_ffn_embed_dim decoder_input_dim "
    "decoder_layerdrop decoder_layers decoder_learned_pos decoder_normalize_before decoder_output_dim dropout encoder "
    "encoder_attention_heads encoder_embed_dim encoder_embed_path encoder_ffn_embed_dim encoder_layerdrop "
    "encoder_layers encoder_learned_pos encoder_normalize_before export full_context_alignment lr_scheduler "
    "max_source_positions max_target_positions min_params_to_wrap no_scale_embedding no_seed_provided "
    "no_token_positional_embeddings offload_activations optimizer quant_noise quant_noise_pq "
    "quant_noise_pq_block_size relu_dropout scoring share_all_embeddings share_decoder_input_output_embed task "
    "tie_adaptive_proj tie_adaptive_weights tokenizer"
).split()
_ARCHITECTURES = re.compile(r"transformer(?!.*(?:_lm|monotonic|unidirectional))\w*")  # others differ in more than size
_COPIES = r"layers\.\d+\.(?:in_proj|out_proj|fc1|fc2)_(?:weight|bias)"  # which 0.12 makes of others when it loads
_UNREAD = re.compile(rf"\.(?:version|embed_positions\._float_tensor|embed_positions\.weights|{_COPIES})$")


def recognises(path: Path, saved: Mapping[str, Any]) -> bool:
    """See `importers.py`."""
    return "model" in saved and ("cfg" in saved or "args" in saved)


def read(path: Path, saved: Mapping[str, Any], options: ImportOptions) -> Imported:
    """See `importers.py`."""
    task, model = options_of(saved, path)
    weights = float_weights({name: each for name, each in saved["model"].items() if not _UNREAD.search(name)}, path)
    weights = divided(weights)
    embeddings = [weights.pop(f"{side}.embed_tokens.weight") for side in ("encoder", "decoder")]
    # Older versions have no output matrix if it is the embedding.
    output = weights.pop("decoder.output_projection.weight", weights.pop("decoder.embed_out", embeddings[1]))
    languages = [options.source_lang or task.get("source_lang"), options.target_lang or task.get("target_lang")]
    found = Found(
        settings=settings_of(model, path),
        names={ours: theirs for stack in _STACKS for ours, theirs in stack.names(weights).items()},
        positions=positions_of(model, weights, output.size(1), path),
        weights=weights,
        embeddings=embeddings,
        output=output,
        output_bias=torch.zeros(len(output)),
        vocabularies=[dictionary(path.parent, language) for language in languages],
        start=SPECIAL_SYMBOLS[EOS],
        languages=languages,
        scaled=not model.get("no_scale_embedding"),
    )
    return assembled(path, found, options)


def options_of(saved: Mapping[str, Any], path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return fairseq's options of the task and of the model.

    Raises:
        CheckpointError: they are not those of a Transformer for translation.
    """
    sections = saved.get("cfg") or {"task": saved.get("args"), "model": saved.get("args")}
    task, model = (_values(sections.get(name)) for name in ("task", "model"))
    for side in ("encoder", "decoder", "quant_noise"):  # newer configurations have sections for them
        if isinstance(model.get(side), Mapping):
            model |= {f"{side}_{name}": value for name, value in model[side].items()}
    kind, architecture = (task.get("_name") or task.get("task")), (model.get("arch") or model.get("_name"))
    if kind != "translation":
        raise CheckpointError(f"{path}: cannot be imported: its task is {shown(kind)}, expected 'translation'")
    if not isinstance(architecture, str) or not _ARCHITECTURES.fullmatch(architecture):
        raise CheckpointError(
            f"{path}: cannot be imported: its architecture is {shown(architecture)}, not a transformer"
        )
    if not model.get("decoder_normalize_before"):
        model.pop("no_decoder_final_norm", None)  # there is none anyway
    if saved.get("cfg"):  # all other options of the command have sections of their own
        others = {name for section, values in sections.items() if section != "model" for name in _values(values)}
        check_settings(model, _SUPPORTED, {*_OTHERS, *others}, path, of_model=re.compile(""))
    else:
        check_settings(model, _SUPPORTED, _OTHERS, path)
    return task, model


def _values(options: Any) -> dict[str, Any]:
    if isinstance(options, Namespace):
        return dict(vars(options))
    return dict(options) if isinstance(options, Mapping) else {}


def settings_of(model: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Return the settings of our Transformer that weights do not show.

    Raises:
        CheckpointError: it does not have one of them.
    """
    both = {}
    for name, default in {"attention_heads": 8, "normalize_before": False}.items():
        values = [model.get(f"{side}_{name}", default) for side in ("encoder", "decoder")]
        if values[0] != values[1]:
            raise CheckpointError(f"{path}: cannot be imported: {name} of encoder and decoder differ: {shown(values)}")
        both[name] = values[0]
    return {
        "num_heads": both["attention_heads"],
        "norm": "pre" if both["normalize_before"] else "post",
        "activation": model.get("activation_fn") or "relu",
        "attention_biases": True,
        "positions": "none",
        "dropout": model.get("dropout", 0.1),
        "attention_dropout": model.get("attention_dropout", 0.0),
        "feed_forward_dropout": model.get("activation_dropout") or model.get("relu_dropout") or 0.0,
    }


def positions_of(
    model: Mapping[str, Any], weights: dict[str, Tensor], d_model: int, path: Path
) -> Sequence[Tensor] | None:
    """Return the positional encodings [positions, d_model] of source and target; learned ones leave `weights`.

    Raises:
        CheckpointError: learned ones are missing, or there are too many others.
    """
    if model.get("no_token_positional_embeddings"):
        return None
    tables = []
    for side, name in (("encoder", "max_source_positions"), ("decoder", "max_target_positions")):
        if f"{side}.embed_positions.weight" in weights or model.get(f"{side}_learned_pos"):
            tables.append(weights.pop(f"{side}.embed_positions.weight")[_FIRST_POSITION:])
            continue
        count = model.get(name) or _POSITIONS
        if type(count) is not int or not 0 < count * d_model <= LARGEST_TABLE:
            raise CheckpointError(
                f"{path}: cannot be imported: its {name} is {shown(count)}, expected at most {LARGEST_TABLE // d_model}"
            )
        tables.append(half_sinusoids(_FIRST_POSITION, count, d_model))
    return tables


def divided(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights with a matrix for each of queries, keys and values, which older versions have as one."""
    parts: dict[str, Tensor] = {}
    for name, tensor in weights.items():
        before, fused, kind = name.partition("in_proj_")
        names = [f"{before}{letter}_proj.{kind}" for letter in "qkv"] if fused else [name]
        parts |= zip(names, tensor.chunk(len(names)), strict=True)
    return parts


def dictionary(folder: Path, language: Any) -> dict[str, int]:
    """Return the ids of the entries of dict.LANGUAGE.txt; raise UsageError if it is not there, or damaged."""
    if not is_language(language):
        raise UsageError(
            f"{folder}: the checkpoint names no language, but {shown(language)}: give --source-lang and --target-lang"
        )
    path = folder / f"dict.{language}.txt"
    if not path.is_file():
        raise UsageError(f"{path}: missing. Copy it from the directory with the prepared data of fairseq")
    words = [line.removesuffix(" #fairseq:overwrite").rpartition(" ")[0] for line in read_lines(path)]
    return {word: i for i, word in enumerate([*_SPECIAL, *words])}
