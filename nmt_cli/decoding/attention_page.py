"""The page of `nmt translate --attention`: the weights of every head and layer, as in the paper's appendix.

The page is one HTML file that needs no network. `attention_page.html` holds its markup and code; this module makes its
data. Letters: S source length, T target length, H heads.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Callable, Sequence
from importlib import resources
from typing import Any, NamedTuple

import torch
from torch import Tensor

from nmt_cli.decoding.outputs import Translation
from nmt_cli.decoding.translator import Translator
from nmt_cli.errors import UsageError
from nmt_cli.interfaces import BOS, EOS, PAD, UNK, ShowsAttention

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
    kind: str  # "word", "part" of the word that the previous token belongs to, or "mark" for a special symbol


class AttentionPage:
    """Collect sentences with their attention weights, and write them as a page.

    Args:
        translator: of one model, not an ensemble.
        name: the model's name on the page.
        warn: called with a message about each sentence that is left out.

    Raises:
        UsageError: the model has no attention weights, or is in another program.
    """

    def __init__(self, translator: Translator, name: str, warn: Callable[[str], None]) -> None:
        if not translator.engine.models:
            raise UsageError("--attention cannot be used with another program's engine, which shows no weights")
        (model,) = translator.engine.models
        if not isinstance(model, ShowsAttention):
            raise UsageError(
                f"--attention: the model of {name}, a {type(model).__name__}, has no method attention_weights; leave "
                "out --attention"
            )
        self._model: ShowsAttention = model
        self._translator, self._name, self._warn = translator, name, warn
        self._sentences: list[dict[str, Any]] = []
        self._too_many = 0

    def __len__(self) -> int:
        return len(self._sentences)

    def add(self, translation: Translation, place: str) -> None:
        """Add a line and its best output, unless the line is empty or too long, or the page is full.

        Args:
            place: the name of the line in a warning.
        """
        source = self._translator.source_ids(translation.source)
        if not source:
            return
        if len(self) == MAX_SENTENCES:
            self._too_many += 1
            return
        output = translation.outputs[0]
        ended = len(output.token_scores) > len(output.ids)  # not cut at the maximum length
        source, target = [*source, EOS], [*output.ids, EOS][: len(output.ids) + ended]
        longest = max(len(source), len(target))
        if longest > MAX_TOKENS:
            self._warn(f"{place}: left out of the attention page: {longest} tokens, more than {MAX_TOKENS}")
            return
        task, target_in = self._translator.task, [BOS, *target[:-1]]
        given = self._model.attention_weights(self._row(source), self._row(target_in))
        weights = {kind: given[kind] for kind in KINDS if kind in given}
        self._sentences.append(
            {
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
        )

    def html(self) -> bytes:
        """Return the page. Warn if there were more sentences than fit."""
        if self._too_many:
            total = MAX_SENTENCES + self._too_many
            self._warn(f"the attention page shows the first {MAX_SENTENCES} of {total} sentences; all are translated")
        data = {"model": self._name, "sentences": self._sentences, "left_out": self._too_many}
        page = resources.files("nmt_cli.decoding").joinpath("attention_page.html").read_text(encoding="utf-8")
        before, after = page.split("{{data}}")
        return (before + embedded(data) + after).encode()

    def _row(self, ids: list[int]) -> Tensor:
        return torch.tensor([ids], device=self._translator.engine.device)


def readable(ids: Sequence[int], pieces: Sequence[str]) -> list[Token]:
    """Return the tokens without the marks of subwords: ▁ before a word (SentencePiece), @@ after a part (subword-nmt).

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
        tokens.append(Token(_SPECIAL[i], "mark") if i in _SPECIAL else Token(text, "part" if part else "word"))
    return tokens


def packed(weights: Sequence[Tensor]) -> str:
    """Return the square roots of the weights in steps of 1/255, one tensor after the other, compressed, in base64.

    The error of a weight is at most 0.004 times its root, so small weights keep their differences.
    """
    steps = [(tensor.float().clamp(0, 1).sqrt() * 255).round().to(torch.uint8).cpu() for tensor in weights]
    raw = b"".join(tensor.contiguous().numpy().tobytes() for tensor in steps)
    return base64.b64encode(zlib.compress(raw, 9)).decode()


def embedded(data: Any) -> str:
    """Return JSON for an HTML script element. It contains no `<`, so no tag can begin in it."""
    return json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
