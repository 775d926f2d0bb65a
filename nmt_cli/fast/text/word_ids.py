"""Ids of many lines at once, from a table of the ids of words."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING

import numpy as np

from nmt_cli.data.vocabulary import SPACE
from nmt_cli.interfaces import ragged

if TYPE_CHECKING:
    import numpy.typing as npt

    from nmt_cli.data.subwords import SentencePieces
    from nmt_cli.interfaces import Ragged

_LARGEST_TABLE = 1 << 20  # ids. A larger table is emptied, so that memory has a limit


def encoder(vocabulary: SentencePieces) -> Callable[[Sequence[str]], Ragged] | None:
    """Return a function that encodes lines word by word, or None if their words depend on others.

    No merge of BPE crosses a space. The unigram model compares sums over a whole line, and a
    vocabulary may have no spaces.
    """
    if vocabulary.kind != "bpe":
        return None
    pieces = vocabulary.pieces(range(len(vocabulary)))
    if SPACE not in pieces or any(SPACE in piece[1:] for piece in pieces):
        return None
    return WordIds(vocabulary.encode_each, pieces.index(SPACE)).encode


class WordIds:
    """Encodes a line as its words' ids. A word stands between two spaces, and may be empty.

    Text repeats its words, so most of them are in the table already. NumPy does the rest.
    """

    def __init__(self, encode: Callable[[list[str]], list[list[int]]], empty: int) -> None:
        self._encode = encode
        self._empty = empty  # the id of the empty word: a space alone
        self._clear()

    def encode(self, lines: Sequence[str]) -> Ragged:
        """Return the ids of `lines` in one array, and the number of ids in each line."""
        if len(self._ids) > _LARGEST_TABLE:
            self._clear()
        lines = [line.replace(SPACE, " ") for line in lines]
        words_in_line = [line.count(" ") + 1 if line else 0 for line in lines]
        words = chain.from_iterable(line.split(" ") for line in lines if line)
        # A new word gets the next number here. `_learn` adds its ids.
        numbers = np.fromiter(map(self._numbers.__getitem__, words), np.int64, sum(words_in_line))
        self._learn()
        lengths = np.diff(self._starts)[numbers]  # [words]
        ends = _ends(lengths)
        shifts = np.repeat(self._starts[numbers] - ends[:-1], lengths)  # [ids of the lines]
        ids = self._ids[np.arange(ends[-1]) + shifts]
        line_ends = ends[_ends(np.array(words_in_line, np.int64))]
        return ids, np.diff(line_ends)

    def _clear(self) -> None:
        self._numbers: defaultdict[str, int] = defaultdict()
        self._numbers.default_factory = self._numbers.__len__  # a new word has the next number
        self._numbers[""] = 0
        self._ids = np.array([self._empty], np.uint32)
        self._starts = np.array([0, 1])  # word i is ids[starts[i]:starts[i + 1]]

    def _learn(self) -> None:
        """Add the ids of the words that have only a number."""
        known = len(self._starts) - 1
        new = list(islice(reversed(self._numbers), len(self._numbers) - known))
        new.reverse()  # back to the order of their numbers
        ids, lengths = ragged(self._encode(new))
        self._ids = np.concatenate((self._ids, ids))
        self._starts = np.concatenate((self._starts, self._starts[-1] + np.cumsum(lengths)))


def _ends(lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return 0 and the sums of the first 1, 2, ... lengths."""
    return np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths)))
