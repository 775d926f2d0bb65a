"""A page to look at attention with: every head of every layer, as the paper's appendix looks at some.

The page is one file that needs no network. Its text and code are `attention_page.html`; here the data are gathered that
it shows. Letters: S source length, T target length, H heads.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Callable, Iterator, Sequence
from importlib import resources
from typing import Any, NamedTuple

import torch
from torch import Tensor

from nmt_cli.decoding.translator import Output, Translation, Translator
from nmt_cli.errors import UsageError
from nmt_cli.interfaces import BOS, EOS, PAD, UNK, ShowsAttention

MOST_SENTENCES = 20
"""Of the input's sentences, the first so many are shown: more would make a page that no browser likes."""

MOST_TOKENS = 128
"""Sentences with more tokens on a side are left out: the weights grow with the square, and no screen shows them."""

KINDS = ("encoder", "decoder", "cross")

_MARKS = {PAD: "padding", UNK: "unknown", BOS: "start", EOS: "end"}
_WORD_BEGINS = "▁"  # SentencePiece's mark before a piece
_WORD_GOES_ON = "@@"  # subword-nmt's mark after a piece
_PLACE_OF_DATA = "{{data}}"


class Token(NamedTuple):
    """A token as a person reads it."""

    text: str
    kind: str  # "word", "part" of the word that the token before belongs to, or "mark": start, end, unknown


class AttentionPage:
    """Gathers sentences with what the model looked at, and becomes a page.

    Args:
        translator: its one model; an ensemble has no attention of its own.
        name: what the page calls the model.
        warn: is told of sentences that are left out.

    Raises:
        UsageError: the model cannot tell what it looks at.
    """

    def __init__(self, translator: Translator, name: str, warn: Callable[[str], None]) -> None:
        if not isinstance(translator.model, ShowsAttention):
            raise UsageError(
                f"--attention: {name} is a {type(translator.model).__name__}, a model that does not tell what it looks "
                "at (it has no method attention_weights); leave out --attention"
            )
        self._model: ShowsAttention = translator.model
        self._translator, self._name, self._warn = translator, name, warn
        self._sentences: list[dict[str, Any]] = []
        self._too_many = 0

    def __len__(self) -> int:
        return len(self._sentences)

    def add(self, translation: Translation, place: str) -> None:
        """Puts a line and its best output on the page, unless the line is empty, too long, or one too many.

        Args:
            place: what a warning calls the line.
        """
        source = self._translator.source_ids(translation.source)
        if not source:
            return
        if len(self) == MOST_SENTENCES:
            self._too_many += 1
            return
        target = _written(translation.outputs[0])
        longest = max(len(source) + 1, len(target))
        if longest > MOST_TOKENS:
            self._warn(f"{place}: not on the page of attention: {longest} tokens, and {MOST_TOKENS} are the most")
            return
        self._sentences.append(self._sentence(translation, place, source, target))

    def html(self) -> bytes:
        """The page; warns if there were more sentences than it shows."""
        if self._too_many:
            self._warn(
                f"the page of attention shows the first {MOST_SENTENCES} of {MOST_SENTENCES + self._too_many} "
                "sentences; all are translated"
            )
        data = {"model": self._name, "sentences": self._sentences, "left_out": self._too_many}
        page = resources.files("nmt_cli.decoding").joinpath("attention_page.html").read_text(encoding="utf-8")
        before, after = page.split(_PLACE_OF_DATA)
        return (before + embedded(data) + after).encode()

    def _sentence(self, translation: Translation, place: str, source: list[int], target: list[int]) -> dict[str, Any]:
        task = self._translator.task
        source, read = [*source, EOS], [BOS, *target[:-1]]
        weights = self._model.attention_weights(self._row(source), self._row(read))
        return {
            "place": place,
            "source": translation.source,
            "target": translation.text,
            "tokens": {
                "source": readable(source, task.source_tokens(source)),
                "read": readable(read, task.target_tokens(read)),
                "written": readable(target, task.target_tokens(target)),
            },
            "shapes": {kind: list(weights[kind].shape) for kind in KINDS},
            "weights": packed([weights[kind] for kind in KINDS]),
        }

    def _row(self, ids: list[int]) -> Tensor:
        return torch.tensor([ids], device=self._translator.device)


def _written(output: Output) -> list[int]:
    """What the model wrote, its end included unless the output was cut at its limit: T ids."""
    ended = len(output.token_scores) > len(output.ids)
    return [*output.ids, EOS] if ended else list(output.ids)


def readable(ids: Sequence[int], pieces: Sequence[str]) -> list[Token]:
    """The tokens as a person reads them: without the marks of subwords, but with what these say.

    Args:
        ids: tell the special symbols from text that looks like them.
        pieces: as the task's vocabulary has them.
    """
    goes_on = list(_goes_on(pieces))
    return [
        Token(_MARKS[i], "mark") if i in _MARKS else Token(_visible(_unmarked(piece)), "part" if part else "word")
        for i, piece, part in zip(ids, pieces, goes_on, strict=True)
    ]


def _goes_on(pieces: Sequence[str]) -> Iterator[bool]:
    """For each piece, whether it goes on with the word of the piece before; no marks at all mean whole words."""
    before_words = any(piece.startswith(_WORD_BEGINS) for piece in pieces)
    for before, piece in zip(["", *pieces], pieces, strict=False):
        yield not piece.startswith(_WORD_BEGINS) if before_words else _is_cut(before)


def _is_cut(piece: str) -> bool:
    return piece.endswith(_WORD_GOES_ON) and piece != _WORD_GOES_ON


def _unmarked(piece: str) -> str:
    if piece.startswith(_WORD_BEGINS):
        return piece[1:].replace(_WORD_BEGINS, " ") or "␣"
    return piece.removesuffix(_WORD_GOES_ON) if _is_cut(piece) else piece


def _visible(text: str) -> str:
    """The text, or its code points where there would be nothing to see."""
    if any(character.isprintable() and not character.isspace() for character in text):
        return text
    return " ".join(f"U+{ord(character):04X}" for character in text)


def packed(weights: Sequence[Tensor]) -> str:
    """Weights from 0 to 1, one tensor after the other: their square roots in steps of 1/255, compressed, in base64.

    So a weight is wrong by 0.004 times its root at most, and the weights of a head that looks everywhere keep their
    differences.
    """
    steps = [(tensor.float().clamp(0, 1).sqrt() * 255).round().to(torch.uint8).cpu() for tensor in weights]
    raw = b"".join(tensor.contiguous().numpy().tobytes() for tensor in steps)
    return base64.b64encode(zlib.compress(raw, 9)).decode()


def embedded(data: Any) -> str:
    """JSON that may stand in an HTML page's script element, whatever text it holds: no tag can begin in it."""
    return json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
