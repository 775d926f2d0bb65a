"""The data of a page of attention: the weights of every head and layer, as in the paper's appendix.

Letters: S source length, T target length, H heads.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from nmt_cli.decoding.encoding import encoded
from nmt_cli.decoding.outputs import Translation
from nmt_cli.decoding.translator import Translator
from nmt_cli.errors import UsageError
from nmt_cli.interfaces import BOS, EOS, PAD, UNK
from nmt_cli.model import Model
from nmt_cli.streams import warn

MAX_SENTENCES = 20
"""Sentences on a page. Browsers are slow with more."""

MAX_TOKENS = 128
"""Tokens of a sentence on either side. The number of weights grows with the square."""

KINDS = ("encoder", "decoder", "cross")
"""The kinds of attention in the order of the page. A model may lack some of them."""

_SPECIAL = {PAD: "padding", UNK: "unknown", BOS: "start", EOS: "end"}


class Token(NamedTuple):
    """A token as the page shows it."""

    text: str
    # "word", "part" of the word that the previous token belongs to, or "mark" for a special symbol.
    kind: str


def sentences_of(translator: Translator, lines: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the data of lines and their best outputs. Warn about each line that is left out.

    Args:
        translator: of one model, in nmt's own engine.
        lines: by their names for warnings.

    Raises:
        UsageError: the model has no attention weights.
    """
    (model,) = translator.engine.models
    if not model.shows_attention:
        raise UsageError(
            f"the model, a {type(model).__name__}, has no attention to show: no method "
            "attention_weights"
        )
    translations = translator.translate_window(list(lines.values()))
    sentences = []
    for place, translation in zip(lines, translations, strict=True):
        sentence = sentence_of(translator, model, translation, place)
        if sentence is not None:
            sentences.append(sentence)
    return sentences


def sentence_of(
    translator: Translator, model: Model, translation: Translation, place: str
) -> dict[str, Any] | None:
    """Return the data of a line, called `place`, and its best output.

    If it is too long, warn and return None.
    """
    task = translator.task
    output = translation.outputs[0]
    limit = translator.options.max_source_length
    source = [*encoded(translation.source, task.encode_source, limit).ids, EOS]
    target = list(output.ids)
    if len(output.token_scores) > len(output.ids):  # not cut at the maximum length
        target.append(EOS)
    if max(len(source), len(target)) > MAX_TOKENS:
        warn(f"{place}: left out, as one side has more than {MAX_TOKENS} tokens")
        return None
    target_in = [BOS, *target[:-1]]  # what the decoder read, shifted by one (section 3.1)
    device = model.output_weight.device
    all_weights = model.attention_weights(
        torch.tensor([source], device=device), torch.tensor([target_in], device=device)
    )
    weights = {}  # [layers, H, S, S], [layers, H, T, T], [layers, H, T, S] of `cross`
    for kind in KINDS:
        if kind in all_weights:
            weights[kind] = all_weights[kind][0]
    return {
        "source": translation.source,
        "target": translation.text,
        "tokens": {
            "source": shown_tokens(source, task.source_tokens(source)),
            "read": shown_tokens(target_in, task.target_tokens(target_in)),
            "written": shown_tokens(target, task.target_tokens(target)),
        },
        "shapes": {kind: list(tensor.shape) for kind, tensor in weights.items()},
        "weights": compressed(list(weights.values())),
    }


def shown_tokens(ids: Sequence[int], pieces: Sequence[str]) -> list[Token]:
    """Return the tokens without the marks of subwords.

    These are ▁ before a word (SentencePiece), and @@ after a part of a word (subword-nmt).

    Args:
        ids: distinguish special symbols from text that looks like them.
        pieces: the tokens in the vocabulary.
    """
    sentencepiece = any(piece.startswith("▁") for piece in pieces)
    tokens = []
    continues = False  # whether the previous piece ends in @@
    for i, piece in zip(ids, pieces, strict=True):
        text = piece
        if sentencepiece:
            is_part = not piece.startswith("▁")
            text = piece.replace("▁", " ").removeprefix(" ") or "␣"
        else:
            is_part = continues
            continues = piece.endswith("@@") and piece != "@@"
            if continues:
                text = piece.removesuffix("@@")
        if i in _SPECIAL:
            tokens.append(Token(_SPECIAL[i], "mark"))
        else:
            tokens.append(Token(_visible(text), "part" if is_part else "word"))
    return tokens


def _visible(text: str) -> str:
    """Return the text, or the code points of its characters if nobody sees one of them."""
    if any(character.isprintable() and not character.isspace() for character in text):
        return text
    return " ".join(f"U+{ord(character):04X}" for character in text)


def compressed(weights: Sequence[Tensor]) -> str:
    """Return the square roots of the weights in steps of 1/255, compressed, in base64.

    The tensors stand one after the other. The error of a weight is at most 0.004 times its root, so
    small weights keep their differences.
    """
    raw = b""
    for tensor in weights:
        steps = (tensor.float().clamp(0, 1).sqrt() * 255).round().to(torch.uint8)
        raw += steps.cpu().contiguous().numpy().tobytes()
    return base64.b64encode(zlib.compress(raw, 9)).decode()
