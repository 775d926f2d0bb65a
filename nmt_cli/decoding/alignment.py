"""Word alignments from the attention over the source, by one layer of the decoder.

The layer before the last, on average over its heads, aligns best (Garg et al. 2019, "Jointly Learning to Align and
Translate with Transformer Models", section 4.1). A row of weights belongs to the token that it predicts. After
training by the criterion `guided_alignment`, the first head of that layer aligns the token that the row reads.

Letters: B sentences, S source length, T target length.
"""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Sequence

import torch
from torch import Tensor

from nmt_cli.data.batching import pad
from nmt_cli.data.vocabulary import SPACE
from nmt_cli.errors import UsageError
from nmt_cli.interfaces import BOS, EOS, Model, ShowsAttention

GUIDED = "guided_alignment"
PLACES = 1 << 17  # B * T * S of a batch. The weights of all layers and heads exist at a time.
WORD = re.compile(r"\S+", re.ASCII)  # words stand between spaces of ASCII

Links = list[tuple[int, int]]


class Aligner:
    """The attention of targets over their sources, by the guided head or the mean of the layer, averaged over models.

    Args:
        models: in evaluation mode, on `device`.

    Raises:
        UsageError: a model has no attention weights.
    """

    def __init__(self, models: Sequence[Model], device: torch.device) -> None:
        self._models = [model for model in models if isinstance(model, ShowsAttention)]
        if len(self._models) < max(1, len(models)):
            raise UsageError(
                "this model has no method attention_weights, which --replace-unknown, --alignments, --markup, "
                "--protect and --glossary need"
            )
        self._device = device

    @torch.inference_mode()
    def weights(self, pairs: Sequence[tuple[Sequence[int], Sequence[int]]]) -> list[Tensor]:
        """Return the weights [T, S] of each pair of source and target ids, which have no BOS and EOS.

        The end of the source is no word, so its weights are left out.
        """
        found = list[Tensor]()
        S, T = (max((len(pair[side]) for pair in pairs), default=0) + 1 for side in (0, 1))
        size = max(1, PLACES // (S * T))
        for part in (pairs[start : start + size] for start in range(0, len(pairs), size)):
            source = pad([[*source, EOS] for source, _ in part]).to(self._device)
            target_in = pad([[BOS, *target] for _, target in part]).to(self._device)
            layers = [_of_layer(model, source, target_in) for model in self._models]
            mean = torch.stack(layers).mean(dim=0).cpu()
            found += [weights[: len(t), : len(s)] for weights, (s, t) in zip(mean, part, strict=True)]
        return found


def _of_layer(model: ShowsAttention, source: Tensor, target_in: Tensor) -> Tensor:
    """Return the weights [B, T, S] of the T targets after BOS in `target_in` [B, T + 1]."""
    layer = model.attention_weights(source, target_in)["cross"][:, -2:][:, 0].float()  # [B, H, T + 1, S]
    return layer[:, 0, 1:] if getattr(model, "criterion", None) == GUIDED else layer[:, :, :-1].mean(dim=1)


def links_of(
    weights: Tensor, source: Sequence[str], target: Sequence[str], line: str, output: str, word: re.Pattern[str] = WORD
) -> Links:
    """Return for each word of the output the word of the input line that it attends to most, as (input, output).

    Words are counted from 0. The weight between two words is the sum over their pieces.

    Args:
        weights: [T, S].
        source, target: the pieces of the line, or of its beginning, and of the output.
        word: what a word is.
    """
    rows, columns = (torch.tensor(words_of(*each, word)) for each in ((target, output), (source, line)))
    if not len(rows) or not len(columns):
        return []
    sums = torch.zeros(int(rows.max()) + 1, int(columns.max()) + 1)
    sums.index_put_((rows[:, None], columns), weights, accumulate=True)
    most = zip(*(each.tolist() for each in sums.max(dim=1)), strict=True)
    return [(word, number) for number, (weight, word) in enumerate(most) if weight > 0]


def words_of(pieces: Sequence[str], line: str, word: re.Pattern[str] = WORD) -> list[int]:
    """Return the number of the word of `line` in which each piece begins; none if the line or the pieces are empty.

    The characters are compared without white space, case and compatibility forms, so normalisation and tokenisation
    change few of them. A stretch of characters that differs, such as an unknown one or `&apos;`, is spread evenly over
    its counterpart.
    """
    words = [(character, n) for n, each in enumerate(word.findall(line)) for character in _plain(each)]
    text = "".join(character for character, _ in words)
    written = [_plain(piece.replace(SPACE, " ")) for piece in pieces]
    places = _places("".join(written), text)
    starts = itertools.accumulate(map(len, written[:-1]), initial=0)
    return [words[places[min(start, len(places) - 1)]][1] for start in starts] if places else []


def _places(written: str, text: str) -> list[int]:
    """Return the place in `text` of each character of `written`."""
    if text.startswith(written):  # a shortcut for almost all lines
        return list(range(len(written)))
    from rapidfuzz.distance import Levenshtein  # training imports this file, also on machines without rapidfuzz

    places, first, second = list[int](), 0, 0
    for a, b, size in Levenshtein.opcodes(written, text).as_matching_blocks():
        places += [max(0, min(second + (i - first) * (b - second) // (a - first), b - 1)) for i in range(first, a)]
        places += range(b, b + size)
        first, second = a + size, b + size
    return places if text else []


def _plain(text: str) -> str:
    return re.sub(r"\s", "", unicodedata.normalize("NFKD", text).casefold())
