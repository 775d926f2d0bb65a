"""Segmentations drawn at random. No piece crosses a space, so words are drawn one by one, and their
tables are kept.

SentencePiece draws the same, but cannot be seeded across processes: version 0.2.3 adds entropy of
the system to a seed.
"""

from __future__ import annotations

import math
from bisect import bisect
from collections.abc import Callable, Mapping
from functools import lru_cache
from heapq import heapify, heappop, heappush
from itertools import accumulate
from random import Random
from typing import Any

from nmt_cli.data.vocabulary import SPACE, Vocabulary

_KEPT = 1 << 15  # words


def sampler(vocabulary: Vocabulary, amount: float) -> Callable[[str, Random], list[int]]:
    """Return what draws ids of text, of BPE or unigram pieces; `WordSamples` explains `amount`."""

    def make(words: Any) -> Callable[[str, Random], list[int]]:
        ids = {text: i for i, text in enumerate(words.texts) if text and SPACE not in text[1:]}
        scores = {text: words.score(i) for text, i in ids.items()}
        return WordSamples(ids, scores, words.encode, words.kind == "bpe", amount).of

    return vocabulary.sampler(make)


class WordSamples:
    """Draws ids of text.

    Args:
        ids, scores: of each piece by its text, spaces as U+2581.
        encode: the plain encoding, for words with a letter that is no piece.
        bpe: BPE-dropout with the probability `amount` (Provilkov et al. 2020, algorithm 1): a pair
            that is left out is looked at again after the next merge. SentencePiece never looks at
            it again, and cuts words far more. Else all segmentations of a unigram model by their
            probability to the power `amount` (Kudo 2018, section 3.2), by forward filtering and
            backward sampling.
    """

    def __init__(
        self,
        ids: Mapping[str, int],
        scores: Mapping[str, float],
        encode: Callable[[str], list[int]],
        bpe: bool,
        amount: float,
    ) -> None:
        self.ids, self.scores, self.encode, self.amount = ids, scores, encode, amount
        self.of = self.of_bpe if bpe else self.of_unigram
        self.log_kept = math.log1p(-amount) if amount < 1 else -math.inf
        self.longest = max(map(len, ids))
        self.known = lru_cache(_KEPT)(
            frozenset(piece for piece in ids if len(piece) == 1).issuperset
        )
        self.merged, self.lattice = (
            lru_cache(4 * _KEPT)(self._merged),
            lru_cache(_KEPT)(self._lattice),
        )

    def of_bpe(self, text: str, random: Random) -> list[int]:
        """Return ids of `text`. The pairs left out are drawn by the distance from one to the next."""
        found: list[int] = []
        place = self._distance(random)
        for word in _words(text):
            if not self.known(word):
                found += self.encode(word[1:])
                continue
            left_out: tuple[int, ...] = ()
            ids, count = self.merged(word, left_out)
            while place < count:
                left_out += (place,)
                place += 1 + self._distance(random)
                ids, count = self.merged(word, left_out)
            place -= count
            found += ids
        return found

    def of_unigram(self, text: str, random: Random) -> list[int]:
        found: list[int] = []
        for word in _words(text):
            if not self.known(word):
                found += self.encode(word[1:])
                continue
            pieces, end, table = [], len(word), self.lattice(word)
            while end:
                starts, sums = table[end - 1]
                start = starts[bisect(sums, random.random() * sums[-1], hi=len(sums) - 1)]
                pieces.append(self.ids[word[start:end]])
                end = start
            found += reversed(pieces)
        return found

    def _distance(self, random: Random) -> int:
        return int(math.log(1 - random.random()) / self.log_kept) if self.amount else 1 << 62

    def _merged(self, word: str, left_out: tuple[int, ...]) -> tuple[list[int], int]:
        """Return the ids of `word` if BPE leaves out the pairs with these numbers, and the number
        of pairs looked at.

        The pair with the best score comes first, then the leftmost one.
        """
        scores, size, count = self.scores, len(word), 0
        passed: list[tuple[float, int, int, int]] = []  # left out since the last merge
        ends = list(range(1, size + 1))  # of the piece that starts there; 0: none does
        starts = [0, *range(size)]  # of the piece that ends there
        pairs = [
            (-scores[word[at : at + 2]], at, at + 1, at + 2)
            for at in range(size - 1)
            if word[at : at + 2] in scores
        ]
        heapify(pairs)
        while pairs:
            pair = heappop(pairs)
            _, start, middle, end = pair
            if ends[start] != middle or ends[middle] != end:
                continue  # one of the two was merged with another
            count += 1
            if count - 1 in left_out:
                passed.append(pair)
                continue
            while passed:
                heappush(pairs, passed.pop())
            ends[start], ends[middle], starts[end] = end, 0, start
            before, after = starts[start], ends[end] if end < size else end
            for first, middle, last in ((before, start, end), (start, end, after)):
                if first < middle < last and word[first:last] in scores:
                    heappush(pairs, (-scores[word[first:last]], first, middle, last))
        return [self.ids[word[start:end]] for start, end in enumerate(ends) if end], count

    def _lattice(self, word: str) -> list[tuple[list[int], list[float]]]:
        """Return, for each end of a piece in `word`, where pieces start that end there, and sums of
        their weights.
        """
        logs, table = [0.0], []  # logs[i]: of the sum over the segmentations of the first i letters
        for end in range(1, len(word) + 1):
            starts = [
                at for at in range(max(0, end - self.longest), end) if word[at:end] in self.scores
            ]
            terms = [logs[at] + self.amount * self.scores[word[at:end]] for at in starts]
            top = max(terms)
            sums = list(accumulate(math.exp(term - top) for term in terms))
            logs.append(top + math.log(sums[-1]))
            table.append((starts, sums))
        return table


def _words(text: str) -> list[str]:
    """Return the words, each with the space before it; there is one before the first word, too."""
    return [SPACE + word for word in text.split(" ")] if text else []
