"""Hugging Face Transformers: a checkpoint as a MarianMTModel and its MarianTokenizer."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import save as serialised
from torch import Tensor

from nmt_cli import registry
from nmt_cli.checkpoint import weights_of
from nmt_cli.config import flag
from nmt_cli.data.marian import MarianPieces
from nmt_cli.data.subwords import SentencePieces
from nmt_cli.data.vocabulary import Vocabulary
from nmt_cli.decoding.beam_search import beam_search
from nmt_cli.decoding.options import SearchOptions
from nmt_cli.errors import CheckpointError, UsageError
from nmt_cli.export.marian import OUTPUT_BIAS, SHARED, SIDES, layer_weights, marian_order, reordered
from nmt_cli.interfaces import BOS, EOS, PAD, SPECIAL_SYMBOLS, UNK, Task

POSITIONS = 1024
"""Rows of Marian's table of positions: the longest sentence that it takes."""
TOLERANCE = 1e-4
"""Of logits."""
LONGEST_OUTPUT = 200
"""Tokens of an output in the check."""
_SPECIAL_IDS = {"pad_token_id": PAD, "bos_token_id": BOS, "eos_token_id": EOS, "decoder_start_token_id": BOS}


def export(model: Any, task: Task, samples: Sequence[str], folder: Path) -> Sequence[str]:
    """See `formats.py`."""
    vocabularies = check(model, task)
    _write_json(folder / "config.json", model_config(model, task))
    _write_json(folder / "generation_config.json", generation_config())
    _write_json(folder / "tokenizer_config.json", tokenizer_config(task))
    for vocabulary, name in zip(vocabularies, ("vocab.json", "target_vocab.json"), strict=True):
        if name == "vocab.json" or not task.shared_vocabulary:
            pieces = vocabulary.pieces(range(len(vocabulary)))
            _write_json(folder / name, {piece: i for i, piece in enumerate(pieces)})
    for vocabulary, name in zip(vocabularies, ("source.spm", "target.spm"), strict=True):
        (folder / name).write_bytes(sentencepiece_model(vocabulary))
    (folder / "model.safetensors").write_bytes(serialised(marian_weights(model), {"format": "pt"}))
    return compare(model, task, samples, folder)


def check(model: Any, task: Any) -> tuple[Vocabulary, Vocabulary]:
    """Return the vocabularies of source and target; raise UsageError if a MarianMTModel cannot express the model."""
    if type(model) is not registry.find("model", "transformer").build:
        raise _refused(f"the model is not a Transformer but a {type(model).__name__}")
    config, attention = model.config, registry.component_of(model.attention).name
    width = config.d_model // config.num_heads
    lacking = {
        f"--attention {attention}": attention != "full",
        f"--norm {config.norm}": config.norm != "post",
        f"--positions {config.positions}": config.positions != "sinusoidal",
        "--gated-feed-forward": config.gated_feed_forward,
        "--experts": config.experts,
        "--d-k and --d-v that are not d_model / h": config.head_widths() != (width, width),
        "--d-model that h does not divide": config.d_model % config.num_heads,
    }
    if task.name != "translation":
        raise _refused(f"the task {task.name} has no tokenizer there")
    lacking |= {flag(name): getattr(task.config, name) for name in ("moses", "lowercase")}
    for name, present in lacking.items():
        if present:
            raise _refused(f"a MarianMTModel has no {name}")
    source, target = task.vocabularies()
    return source, target


def _refused(reason: str) -> UsageError:
    return UsageError(f"--to huggingface: {reason}")


def sentencepiece_model(vocabulary: Vocabulary) -> bytes:
    """Return the SentencePiece model of a vocabulary; raise UsageError if it has none."""
    if isinstance(vocabulary, MarianPieces):
        return vocabulary.model
    if isinstance(vocabulary, SentencePieces):
        return vocabulary.serialise()
    raise _refused(f"a MarianTokenizer has no --subwords {vocabulary.kind}")


def marian_weights(model: Any) -> dict[str, Tensor]:
    """Return the weights by Marian's names. Biases that the model does not have are zeros."""
    ours, order = weights_of(model), marian_order(model.config.d_model)
    theirs = {}
    for pair in layer_weights(model.config.num_layers):
        weight = ours.get(pair.ours)
        if weight is None:
            weight = torch.zeros(len(theirs[pair.theirs.removesuffix("bias") + "weight"]))
        theirs[pair.theirs] = reordered(weight, pair.axis, order)
    embeddings = model.source_embedding.weight, model.target_embedding.weight
    shared = embeddings[0] is embeddings[1]
    for name, embedding in [(SHARED, embeddings[0])] if shared else zip(SIDES, embeddings, strict=True):
        theirs[name] = reordered(embedding.detach(), 1, order)
    bias = model.output_bias
    theirs[OUTPUT_BIAS] = torch.zeros(1, model.vocabulary_size) if bias is None else bias.detach()[None]
    return {name: tensor.contiguous() for name, tensor in theirs.items()}


def model_config(model: Any, task: Task) -> dict[str, Any]:
    """Return the content of config.json."""
    config = model.config
    sides = ("encoder", "decoder")
    return {
        "architectures": ["MarianMTModel"],
        "model_type": "marian",
        "is_encoder_decoder": True,
        "vocab_size": task.source_vocabulary_size,
        "decoder_vocab_size": task.target_vocabulary_size,
        "share_encoder_decoder_embeddings": task.shared_vocabulary,
        "tie_word_embeddings": True,
        "scale_embedding": True,
        "max_position_embeddings": POSITIONS,
        "d_model": config.d_model,
        **{f"{side}_layers": config.num_layers for side in sides},
        **{f"{side}_ffn_dim": config.d_ff for side in sides},
        **{f"{side}_attention_heads": config.num_heads for side in sides},
        "activation_function": config.activation,
        "dropout": config.dropout,
        "attention_dropout": config.attention_dropout,
        "activation_dropout": config.feed_forward_dropout,
        **_SPECIAL_IDS,
        "forced_eos_token_id": None,
        "dtype": "float32",
    }


def generation_config() -> dict[str, Any]:
    """Return the content of generation_config.json: beam search much like that of `nmt translate`.

    A log-probability is divided by length^p there. At 20 to 30 tokens, p = 0.5 favours longer outputs as much as
    ((5 + length) / 6)^0.6 does.
    """
    return {
        **_SPECIAL_IDS,
        "num_beams": 4,
        "length_penalty": 0.5,
        "max_length": 512,
        "suppress_tokens": [PAD, UNK, BOS],
    }


def tokenizer_config(task: Any) -> dict[str, Any]:
    """Return the content of tokenizer_config.json."""
    names = ("pad_token", "unk_token", "bos_token", "eos_token")
    return {
        "tokenizer_class": "MarianTokenizer",
        "source_lang": task.config.source_lang,
        "target_lang": task.config.target_lang,
        "separate_vocabs": not task.shared_vocabulary,
        **dict(zip(names, SPECIAL_SYMBOLS, strict=True)),
        "split_special_tokens": True,  # </s> in a text is text
        "model_max_length": POSITIONS,
    }


@torch.inference_mode()
def compare(model: Any, task: Any, samples: Sequence[str], folder: Path) -> list[str]:
    """Return a report of how `folder`, loaded there, and the model agree on source lines.

    Raises:
        CheckpointError: ids differ, or logits by more than `TOLERANCE`, or more than a tenth of the greedy outputs.
    """
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    ours, distance, equal = model.decodable("float32"), 0.0, 0
    for line in samples:
        ids = [*task.encode_source(line)[: POSITIONS - 1], EOS]
        if tokenizer(line, truncation=True)["input_ids"] != ids:
            raise _differs(f"the ids of {line!r}")
        source, limit = torch.tensor([ids]), min(len(ids) + 50, LONGEST_OUTPUT)
        output = beam_search(ours, source, [limit], SearchOptions(beam=1, alpha=0.0))[0][0].tokens
        target = torch.tensor([[BOS, *output]])
        logits = theirs(source, decoder_input_ids=target).logits - model(source, target)
        distance = max(distance, float(logits.abs().max()))
        generated = theirs.generate(source, num_beams=1, max_length=limit + 1)[0].tolist()
        equal += generated[1:] == [*output, EOS][:limit]
    if not distance <= TOLERANCE:
        raise _differs(f"logits, by {distance:.2g},")
    if 10 * equal < 9 * len(samples):
        raise _differs(f"{len(samples) - equal} of {len(samples)} greedy outputs")
    return [
        f"ids: equal, logits: at most {distance:.1g} apart (allowed: {TOLERANCE:g})",
        f"greedy outputs: {equal} of {len(samples)} equal",
    ]


def _differs(what: str) -> CheckpointError:
    return CheckpointError(
        f"{what} differ in transformers {transformers.__version__}; nothing was exported. Please report this, with "
        "the checkpoint's config.json."
    )


def _write_json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
