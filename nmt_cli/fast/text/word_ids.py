"""Ids of many lines at once, from a table of the ids of words."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING

import numpy as np

from nmt_cli.data.vocabulary import SPACE
from nmt_cli.interfaces import joined

if TYPE_CHECKING:
    import numpy.typing as npt

    from nmt_cli.data.subwords import SentencePieces
    from nmt_cli.interfaces import Ragged

_LARGEST_TABLE = 1 << 20  # ids; a larger one is emptied


def encoder(vocabulary: SentencePieces) -> Callable[[Sequence[str]], Ragged] | None:
    """Return what encodes lines by words, whose ids do not depend on their neighbours: no merge of
    BPE crosses a space.

    None for the unigram model, which compares sums over a whole line, and for a vocabulary without
    spaces.
    """
    pieces = vocabulary.pieces(range(len(vocabulary)))
    if (
        vocabulary.kind != "bpe"
        or SPACE not in pieces
        or any(SPACE in piece[1:] for piece in pieces)
    ):
        return None
    return WordIds(vocabulary.encode_each, pieces.index(SPACE)).encode


class WordIds:
    """Encodes lines as the sequence of their words' ids. A word, which may be empty, stands between
    two spaces.

    Text repeats its words, so most of them are in the table already, and the rest is done by numpy.
    """

    def __init__(self, encode: Callable[[list[str]], list[list[int]]], empty: int) -> None:
        self._encode, self._empty = encode, empty
        self._clear()

    def encode(self, lines: Sequence[str]) -> Ragged:
        """Return the ids of `lines` in one array, and the number of ids in each line. An empty line
        has none.
        """
        if len(self._ids) > _LARGEST_TABLE:
            self._clear()
        lines = [line.replace(SPACE, " ") for line in lines]
        words_of_lines = np.fromiter(
            (line.count(" ") + 1 if line else 0 for line in lines), np.int64, len(lines)
        )
        words = chain.from_iterable(line.split(" ") for line in lines if line)
        numbers = np.fromiter(
            map(self._numbers.__getitem__, words), np.int64, int(words_of_lines.sum())
        )
        self._learn()
        lengths = np.diff(self._starts)[numbers]
        ends = _ends(lengths)
        places = np.arange(ends[-1]) + np.repeat(self._starts[numbers] - ends[:-1], lengths)
        return self._ids[places], np.diff(ends[_ends(words_of_lines)])

    def _clear(self) -> None:
        self._numbers: defaultdict[str, int] = defaultdict()
        self._numbers.default_factory = self._numbers.__len__  # a new word has the next number
        self._numbers[""] = 0
        self._ids = np.array([self._empty], np.uint32)
        self._starts = np.array([0, 1])  # word i is ids[starts[i]:starts[i + 1]]

    def _learn(self) -> None:
        """Add the ids of the words that have a number only."""
        new = list(islice(reversed(self._numbers), len(self._numbers) + 1 - len(self._starts)))[
            ::-1
        ]
        ids, lengths = joined(self._encode(new))
        self._ids = np.concatenate((self._ids, ids))
        self._starts = np.concatenate((self._starts, self._starts[-1] + np.cumsum(lengths)))


def _ends(lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return 0 and the sums of the first 1, 2, ... lengths."""
    return np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths)))
