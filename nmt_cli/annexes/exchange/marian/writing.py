"""Hugging Face Transformers: a checkpoint as a MarianMTModel and its MarianTokenizer."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import regex
import torch
import transformers
from safetensors.torch import save as serialised
from torch import Tensor, nn

from nmt_cli.annexes.exchange.export.comparison import Comparison, expressible, refuse
from nmt_cli.annexes.exchange.importing.assembly import renamed
from nmt_cli.annexes.exchange.marian.pieces import MarianPieces
from nmt_cli.annexes.exchange.marian.weights import (
    NAMES,
    OUTPUT_BIAS,
    PROGRAM,
    SHARED,
    SIDES,
    ours_to_marian,
)
from nmt_cli.data import unicode
from nmt_cli.data.subwords import SentencePieces
from nmt_cli.data.vocabulary import Vocabulary
from nmt_cli.errors import CheckpointError, UsageError, shown
from nmt_cli.files import durable
from nmt_cli.files.text import write_object
from nmt_cli.interfaces import BOS, EOS, PAD, SPECIAL_SYMBOLS, UNK
from nmt_cli.models.transformer import Transformer
from nmt_cli.task import Task
from nmt_cli.weights import weights_of

POSITIONS = 1024  # rows of Marian's table of positions: the longest sentence that it takes
_SPECIAL_IDS = {
    "pad_token_id": PAD,
    "bos_token_id": BOS,
    "eos_token_id": EOS,
    "decoder_start_token_id": BOS,
}


def export(
    model: nn.Module, task: Any, samples: Sequence[str], folder: Path, quantization: str = "float32"
) -> Sequence[str]:
    """See `formats.py`."""
    if quantization != "float32":
        raise UsageError(
            "--quantization is an option of --to ctranslate2; Transformers converts weights when "
            "it loads"
        )
    transformer = check(model, task)
    source, target = task.vocabularies()
    _write_pieces(source, folder / "source.spm", task)
    _write_pieces(target, folder / "target.spm", task)
    _write_entries(source, folder / "vocab.json")
    if not task.shared_vocabulary:
        _write_entries(target, folder / "target_vocab.json")
    write_object(folder / "tokenizer_config.json", tokenizer_config(task))
    write_object(folder / "config.json", model_config(transformer, task))
    write_object(folder / "generation_config.json", generation_config())
    weights = serialised(marian_weights(transformer), {"format": "pt"})
    durable.write_bytes(folder / "model.safetensors", weights)
    return compare(transformer, task, samples, folder)


def _write_pieces(vocabulary: Vocabulary, path: Path, task: Any) -> None:
    durable.write_bytes(path, _with_rule(sentencepiece_model(vocabulary), task.config))


def _write_entries(vocabulary: Vocabulary, path: Path) -> None:
    pieces = vocabulary.pieces(range(len(vocabulary)))
    write_object(path, {piece: i for i, piece in enumerate(pieces)})


def _with_rule(model: bytes, config: Any) -> bytes:
    """Return the SentencePiece model `model` with the task's rule of normalisation.

    The models of tasks have no rule.
    """
    if config.normalization == unicode.NONE:
        return model
    import sentencepiece

    sentencepiece.SetMinLogLevel(2)  # of four: errors
    rule = sentencepiece.SentencePieceNormalizer(rule_name=config.normalization)
    if unicode.cleans(config.normalization, config.normalization_version):
        rules = dict(rule.Decompile()) | _rules_of_unseen(config.normalization)
        # SentencePiece makes a space of ZWNJ, and takes the vowel AM apart.
        for character in "\u200c\u0e33\u0eb3":
            rules.pop(character, None)
        rule = sentencepiece.SentencePieceNormalizer(
            norm_map=list(rules.items()), remove_extra_whitespaces=True
        )
    # A model that has the rule and nothing else. Of two messages in a row, protobuf reads the
    # union.
    return model + bytes(rule.serialized_model_proto())


def _rules_of_unseen(rule: str) -> dict[str, str]:
    """Return the rules for invisible characters, and for letters before an idle ZWNJ or ZWJ.

    SentencePiece does not look at what follows, so a joiner stays after a letter that may join the
    next one. Tag characters stay, too, for the sake of flags.
    """
    codes = [code for code in range(1, sys.maxunicode + 1) if not 0xD800 <= code < 0xE000]
    characters = "".join(chr(code) for code in codes)
    unseen = (
        f"(?![\U000e0020-\U000e007f])[{unicode.INVISIBLE}{unicode.SPACES}{unicode.WINDOWS_1252}]"
    )
    idle = r"[\p{Latin}\p{Greek}\p{Cyrillic}\p{jt=R}\p{N}\p{P}\p{Zs}]"
    sources = [*re.findall(unseen, characters), "\u0e4d\u0e32", "\u0ecd\u0eb2"]  # the vowel AM
    for character in regex.findall(idle, characters):
        sources += [f"{character}\u200c", f"{character}\u200d"]
    rules = {}
    for source in sources:
        (normalised,) = unicode.normalised([f"a{source}a"], rule)
        rules[source] = normalised[1:-1]
    return rules


def check(model: nn.Module, task: Any) -> Transformer:
    """Return the model.

    Raises:
        UsageError: a MarianMTModel or its tokenizer cannot express a setting, which is named.
    """
    transformer = expressible(model, "a MarianMTModel")
    if task.name != "translation":
        raise UsageError(f"a MarianTokenizer has no task {task.name}: --task translation only")
    config = transformer.config
    text = task.config
    needed = {
        f"--norm {config.norm}": config.norm != "post",
        f"--positions {config.positions}": config.positions != "sinusoidal",
        "--gated-feed-forward": config.gated_feed_forward,
        "--moses": text.moses,
        "--lowercase": text.lowercase,
        "--symbols": vars(text).get("symbols"),
        f"--normalization {text.normalization}": text.normalization in ("nfc", "nfd"),
    }
    refuse("a MarianMTModel", needed)
    return transformer


def sentencepiece_model(vocabulary: Vocabulary) -> bytes:
    """Return the SentencePiece model of a vocabulary.

    Raises:
        UsageError: it has none.
    """
    if isinstance(vocabulary, MarianPieces):
        return vocabulary.model
    if isinstance(vocabulary, SentencePieces):
        return vocabulary.serialise()
    raise UsageError(
        f"a MarianTokenizer has no --subwords {vocabulary.kind}: bpe, unigram or character only"
    )


def marian_weights(model: Transformer) -> dict[str, Tensor]:
    """Return the weights by Marian's names. Biases that the model does not have are zeros."""
    marian_names = {our_name: name for name, our_name in NAMES.items()}
    weights = {}
    for name, weight in weights_of(model).items():
        if name.startswith(("encoder.", "decoder.")):
            weights[renamed(name, marian_names)] = ours_to_marian(name, weight)
    for name, weight in list(weights.items()):
        if name.endswith(".weight"):
            weights.setdefault(name.removesuffix("weight") + "bias", torch.zeros(len(weight)))
    source = model.source_embedding.weight
    target = model.target_embedding.weight
    embeddings = {SHARED: source}
    if source is not target:
        embeddings = dict(zip(SIDES, (source, target), strict=True))
    for name, embedding in embeddings.items():
        weights[name] = ours_to_marian("embedding.weight", embedding.detach())
    output_bias = torch.zeros(model.vocabulary_size)
    if model.output_bias is not None:
        output_bias = model.output_bias.detach()
    weights[OUTPUT_BIAS] = output_bias[None]
    return {name: tensor.contiguous() for name, tensor in weights.items()}


def model_config(model: Transformer, task: Task) -> dict[str, Any]:
    """Return the content of config.json."""
    config = replace(model.config, num_decoder_layers=model.config.decoder_layers)
    settings = {}
    for our_name, marian_names in PROGRAM["settings"].items():
        for name in marian_names:
            settings[name] = getattr(config, our_name)
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
        **settings,
        **_SPECIAL_IDS,
        "forced_eos_token_id": None,
        "dtype": "float32",
    }


def generation_config() -> dict[str, Any]:
    """Return the content of generation_config.json: a beam search much like `nmt translate`.

    A log-probability is divided by length^p there. At 20 to 30 tokens, p = 0.5 favours longer
    outputs as much as ((5 + length) / 6)^0.6 does.
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
def compare(model: Any, task: Any, samples: Sequence[str], folder: Path) -> Sequence[str]:
    """Return a report of how the model in `folder`, loaded by Transformers, and the model agree.

    Args:
        samples: source lines.

    Raises:
        CheckpointError: ids, log-probabilities or greedy outputs differ.
    """
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    program = f"transformers {transformers.__version__}"
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    marian = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    comparison = Comparison(model, task, samples, program)
    cleans = unicode.cleans(task.config.normalization, task.config.normalization_version)
    for line, ids in zip(samples, comparison.sources, strict=True):
        texts = [line]
        if cleans:
            texts.append(f"\u00ad {line.replace(' ', '  ')} \u2581")
        for text in texts:
            if tokenizer(text)["input_ids"] != [*ids, EOS]:
                raise CheckpointError(f"{program} has other ids for {shown(text)}")
    outputs = []
    for ids, limit in zip(comparison.sources, comparison.limits, strict=True):
        source = torch.tensor([[*ids, EOS]])
        generated = marian.generate(source, num_beams=1, max_length=limit + 1)
        tokens = generated[0, 1:].tolist()  # without the symbol with which it starts
        if EOS in tokens:
            tokens = tokens[: tokens.index(EOS)]
        outputs.append(tokens)

    def logits(source: Tensor, target_in: Tensor) -> Tensor:
        computed: Tensor = marian(source, decoder_input_ids=target_in).logits
        return computed

    log_probabilities = comparison.log_probabilities(comparison.outputs, logits)
    return [
        f"ids: those of {len(samples)} lines are equal",
        *comparison.report(log_probabilities, outputs),
    ]
