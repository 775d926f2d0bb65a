"""Word alignments from the attention over the source, by one layer of the decoder.

The layer before the last, on average over its heads, aligns best (Garg et al. 2019, "Jointly
Learning to Align and Translate with Transformer Models", section 4.1). A row of weights belongs to
the token that it predicts. After training by the criterion `guided_alignment`, the first head of
that layer aligns the token that the row reads.

Letters: B sentences, S source length, T target length.
"""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nmt_cli.annexes.around.words import LINKED, WORD, Links
from nmt_cli.checkpoint import read_contents
from nmt_cli.data.batching import pad
from nmt_cli.data.vocabulary import SPACE
from nmt_cli.decoding.engine import Engine, Request
from nmt_cli.decoding.outputs import Output
from nmt_cli.errors import UsageError
from nmt_cli.interfaces import BOS, EOS
from nmt_cli.model import Model
from nmt_cli.task import Task
from nmt_cli.tasks.translation import TranslationTask

GUIDED = "guided_alignment"
PLACES = 1 << 17  # B * T * S of a batch. The weights of all layers and heads exist at a time.
# The note of an output with the pieces that its text was made of, if these are not its tokens.
PIECES = "pieces"


class Aligner:
    """The attention of targets over their sources, averaged over models.

    Raises:
        UsageError: a model has no attention weights.
    """

    def __init__(self, engine: Engine, tag: str | None) -> None:
        self._models = [model for model in engine.models if model.shows_attention]
        if len(self._models) < len(engine.models):
            raise UsageError(
                "this model has no method attention_weights, which --replace-unknown, "
                "--alignments, --markup, --protect and --glossary need"
            )
        self._guided = [False] * len(self._models)
        if engine.folders:
            self._guided = [criterion_of(folder) == GUIDED for folder in engine.folders]
        self._task, self._tag = engine.task, tag

    def linked(
        self, batch: Sequence[Request], outputs: list[list[Output]], note: str
    ) -> list[list[Output]]:
        """Return the outputs of each text with their links in the `note`, one of `LINKED`."""
        word = LINKED[note]
        tags = len(word.findall(self._tag or ""))

        def linked(text: Request, output: Output, weights: Tensor) -> Output:
            line = self.line_of(text)
            source = source_words(self._task, line) or self._task.source_tokens(text.ids)
            target = output.notes.get(PIECES, output.tokens)
            links = links_of(weights, source[: len(text.ids)], target, line, output.text, word)
            return output.noted(note, [(i - tags, j) for i, j in links if i >= tags])

        return self.revised(batch, outputs, linked)

    def revised(
        self,
        batch: Sequence[Request],
        outputs: list[list[Output]],
        revise: Callable[[Request, Output, Tensor], Output],
    ) -> list[list[Output]]:
        """Return what `revise` makes of each output, given its text and its weights [T, S]."""
        pairs = []
        for text, of_text in zip(batch, outputs, strict=True):
            pairs += [(text.ids, output.ids) for output in of_text]
        weights = iter(self.weights(pairs))
        revised = []
        for text, of_text in zip(batch, outputs, strict=True):
            revised.append([revise(text, output, next(weights)) for output in of_text])
        return revised

    def line_of(self, text: Request) -> str:
        """Return the text that was encoded, with the tag before it."""
        line = text.line.strip()
        if self._tag:
            line = f"{self._tag} {line}"
        return line

    @torch.inference_mode()
    def weights(self, pairs: Sequence[tuple[Sequence[int], Sequence[int]]]) -> list[Tensor]:
        """Return the weights [T, S] of each pair of source and target ids, without BOS and EOS.

        The end of the source is not a word, so its weights are left out.
        """
        results = list[Tensor]()
        device = self._models[0].output_weight.device
        S = 1 + max((len(source) for source, _ in pairs), default=0)
        T = 1 + max((len(target) for _, target in pairs), default=0)
        size = max(1, PLACES // (S * T))
        for start in range(0, len(pairs), size):
            part = pairs[start : start + size]
            source = pad([[*source, EOS] for source, _ in part]).to(device)
            target_in = pad([[BOS, *target] for _, target in part]).to(device)
            layers = [
                _of_layer(model, guided, source, target_in)
                for model, guided in zip(self._models, self._guided, strict=True)
            ]
            mean = torch.stack(layers).mean(dim=0).cpu()  # [B, T, S]
            for weights, (s, t) in zip(mean, part, strict=True):
                results.append(weights[: len(t), : len(s)])
        return results


def source_words(task: Task, line: str) -> list[str] | None:
    """Return the words of an input line, one for each id, or None if an id may be a part of one."""
    if not isinstance(task, TranslationTask) or task.config.subwords != "none":
        return None
    (tokenised,) = task.tokenised([line], 0)
    return [word for word in tokenised.split(" ") if word]


def _of_layer(model: Model, guided: bool, source: Tensor, target_in: Tensor) -> Tensor:
    """Return the weights [B, T, S] of the T targets after BOS in `target_in` [B, T + 1]."""
    layers = model.attention_weights(source, target_in)["cross"]
    # The last layer but one, or the only one.
    layer = layers[:, -2:][:, 0].float()  # [B, H, T + 1, S]
    if guided:
        return layer[:, 0, 1:]
    return layer[:, :, :-1].mean(dim=1)


def criterion_of(checkpoint: Path) -> str | None:
    """Return the name of the criterion that a checkpoint was trained by, if it says so."""
    section: Any = read_contents(checkpoint).sections.get("criterion")
    if not isinstance(section, Mapping):
        return None
    return section.get("name")


def links_of(
    weights: Tensor,
    source: Sequence[str],
    target: Sequence[str],
    line: str,
    output: str,
    word: re.Pattern[str] = WORD,
) -> Links:
    """Return a link (input, output) of each output word with the word that it attends to most.

    Words are counted from 0. The weight between two words is the sum over their pieces.

    Args:
        weights: [T, S].
        source, target: the pieces of the line, or of its beginning, and of the output.
        word: what a word is.
    """
    rows = torch.tensor(words_of(target, output, word))
    columns = torch.tensor(words_of(source, line, word))
    if not len(rows) or not len(columns):
        return []
    sums = torch.zeros(int(rows.max()) + 1, int(columns.max()) + 1)  # [output words, input words]
    sums.index_put_((rows[:, None], columns), weights, accumulate=True)
    largest = sums.max(dim=1)
    most = zip(largest.values.tolist(), largest.indices.tolist(), strict=True)
    return [(place, number) for number, (weight, place) in enumerate(most) if weight > 0]


def words_of(pieces: Sequence[str], line: str, word: re.Pattern[str] = WORD) -> list[int]:
    """Return the number of the word of `line` in which each piece begins.

    It is empty if the line or the pieces are empty. The characters are compared without white
    space, case and compatibility forms, so normalisation and tokenisation change few of them. A
    stretch of characters that differs, such as an unknown one or `&apos;`, is spread evenly over
    its counterpart.
    """
    text = ""
    word_of = list[int]()  # the word of each character of `text`
    for number, word_of_line in enumerate(word.findall(line)):
        characters = _folded(word_of_line)
        text += characters
        word_of += [number] * len(characters)
    folded_pieces = [_folded(piece.replace(SPACE, " ")) for piece in pieces]
    places = _places("".join(folded_pieces), text)
    if not places:
        return []
    starts = itertools.accumulate(map(len, folded_pieces[:-1]), initial=0)
    return [word_of[places[min(start, len(places) - 1)]] for start in starts]


def _places(written: str, text: str) -> list[int]:
    """Return the place in `text` of each character of `written`."""
    if not text:
        return []
    if text.startswith(written):  # a shortcut for almost all lines
        return list(range(len(written)))
    # Training imports this file, also on machines without rapidfuzz.
    from rapidfuzz.distance import Levenshtein

    places = list[int]()
    start_a, start_b = 0, 0  # of the stretch that differs, in `written` and in `text`
    for a, b, size in Levenshtein.opcodes(written, text).as_matching_blocks():
        for i in range(start_a, a):
            place = start_b + (i - start_a) * (b - start_b) // (a - start_a)
            places.append(max(0, min(place, b - 1)))
        places += range(b, b + size)
        start_a, start_b = a + size, b + size
    return places


def _folded(text: str) -> str:
    """Return a text without white space, case and compatibility forms."""
    return re.sub(r"\s", "", unicodedata.normalize("NFKD", text).casefold())
