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
"""The kinds of attention in the order of the page; a model may have some of them."""

_SPECIAL = {PAD: "padding", UNK: "unknown", BOS: "start", EOS: "end"}


class Token(NamedTuple):
    """A token as the page shows it."""

    text: str
    # "word", "part" of the word that the previous token belongs to, or "mark" for a special symbol.
    kind: str


def sentences_of(translator: Translator, lines: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the data of lines and their best outputs; warn about each line that is left out.

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
    translations = zip(lines, translator.translate_window([*lines.values()]), strict=True)
    sentences = (
        sentence_of(translator, model, translation, place) for place, translation in translations
    )
    return [data for data in sentences if data is not None]


def sentence_of(
    translator: Translator, model: Model, translation: Translation, place: str
) -> dict[str, Any] | None:
    """Return the data of a line, called `place`, and its best output; None, with a warning, if it
    is too long.
    """
    task, output = translator.task, translation.outputs[0]
    limit = translator.options.max_source_length
    source = [*encoded(translation.source, task.encode_source, limit).ids, EOS]
    ended = len(output.token_scores) > len(output.ids)  # not cut at the maximum length
    target = [*output.ids, EOS][: len(output.ids) + ended]
    if max(len(source), len(target)) > MAX_TOKENS:
        warn(f"{place}: left out, as one side has more than {MAX_TOKENS} tokens")
        return None
    target_in = [BOS, *target[:-1]]
    rows = (torch.tensor([ids], device=translator.engine.device) for ids in (source, target_in))
    given = model.attention_weights(*rows)
    weights = {kind: given[kind][0] for kind in KINDS if kind in given}
    return {
        "source": translation.source,
        "target": translation.text,
        "tokens": {
            "source": readable(source, task.source_tokens(source)),
            "read": readable(target_in, task.target_tokens(target_in)),
            "written": readable(target, task.target_tokens(target)),
        },
        "shapes": {kind: list(each.shape) for kind, each in weights.items()},
        "weights": packed(list(weights.values())),
    }


def readable(ids: Sequence[int], pieces: Sequence[str]) -> list[Token]:
    """Return the tokens without the marks of subwords: ▁ before a word (SentencePiece), @@ after a
    part (subword-nmt).

    Args:
        ids: distinguish special symbols from text that looks like them.
        pieces: the tokens in the vocabulary.
    """
    sentencepiece = any(piece.startswith("▁") for piece in pieces)
    tokens = []
    cut = False  # whether the previous piece ends in @@
    for i, piece in zip(ids, pieces, strict=True):
        if sentencepiece:
            part, text = not piece.startswith("▁"), piece.replace("▁", " ").removeprefix(" ") or "␣"
        else:
            part, cut = cut, piece.endswith("@@") and piece != "@@"
            text = piece.removesuffix("@@") if cut else piece
        if not any(character.isprintable() and not character.isspace() for character in text):
            text = " ".join(f"U+{ord(character):04X}" for character in text)  # invisible
        tokens.append(
            Token(_SPECIAL[i], "mark") if i in _SPECIAL else Token(text, "part" if part else "word")
        )
    return tokens


def packed(weights: Sequence[Tensor]) -> str:
    """Return the square roots of the weights in steps of 1/255, one tensor after the other,
    compressed, in base64.

    The error of a weight is at most 0.004 times its root, so small weights keep their differences.
    """
    steps = [
        (tensor.float().clamp(0, 1).sqrt() * 255).round().to(torch.uint8).cpu()
        for tensor in weights
    ]
    raw = b"".join(tensor.contiguous().numpy().tobytes() for tensor in steps)
    return base64.b64encode(zlib.compress(raw, 9)).decode()
