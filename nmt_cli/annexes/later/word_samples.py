"""Segmentations drawn at random.

No piece crosses a space. So words are drawn one by one, and their tables are cached. SentencePiece
draws the same, but cannot be seeded across processes: version 0.2.3 adds entropy of the system.
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

_CACHED = 1 << 15  # words
_NEVER = 1 << 62  # more pairs than there are


def sampler(vocabulary: Vocabulary, amount: float) -> Callable[[str, Random], list[int]]:
    """Return what draws ids of text, of BPE or unigram pieces, by `amount` as in `WordSamples`."""

    def make(words: Any) -> Callable[[str, Random], list[int]]:
        ids = {text: i for i, text in enumerate(words.texts) if text and SPACE not in text[1:]}
        scores = {text: words.score(i) for text, i in ids.items()}
        return WordSamples(ids, scores, words.encode, words.kind == "bpe", amount).of

    return vocabulary.sampler(make)


class WordSamples:
    """Draws ids of text.

    Args:
        ids: of each piece by its text, spaces as U+2581.
        scores: of each piece, likewise.
        encode: the plain encoding, for words with a letter that is no piece.
        bpe: whether the pieces are of BPE or of a unigram model.
        amount: for BPE, the probability that a pair is left out (BPE-dropout, Provilkov et al.
            2020, algorithm 1). It is looked at again after the next merge. SentencePiece never
            does, and cuts words far more. For a unigram model, the power to which segmentations
            have their probability (Kudo 2018, section 3.2). They are drawn by forward filtering
            and backward sampling.
    """

    def __init__(
        self,
        ids: Mapping[str, int],
        scores: Mapping[str, float],
        encode: Callable[[str], list[int]],
        bpe: bool,
        amount: float,
    ) -> None:
        self.ids = ids
        self.scores = scores
        self.encode = encode
        self.amount = amount
        self.of = self.of_bpe if bpe else self.of_unigram
        self.log_taken = math.log1p(-amount) if amount < 1 else -math.inf
        self.longest = max(map(len, ids))
        letters = frozenset(piece for piece in ids if len(piece) == 1)
        self.has_pieces = lru_cache(_CACHED)(letters.issuperset)
        self.merged = lru_cache(4 * _CACHED)(self._merged)
        self.lattice = lru_cache(_CACHED)(self._lattice)

    def of_bpe(self, text: str, random: Random) -> list[int]:
        """Return ids of `text`."""
        ids: list[int] = []
        # Pairs are numbered over all words. The next one to be left out is drawn by its distance.
        place = self._distance(random)
        for word in _words(text):
            if not self.has_pieces(word):
                ids += self.encode(word[1:])
                continue
            left_out: tuple[int, ...] = ()
            word_ids, count = self.merged(word, left_out)
            while place < count:
                left_out += (place,)
                place += 1 + self._distance(random)
                word_ids, count = self.merged(word, left_out)
            place -= count
            ids += word_ids
        return ids

    def of_unigram(self, text: str, random: Random) -> list[int]:
        """Return ids of `text`."""
        ids: list[int] = []
        for word in _words(text):
            if not self.has_pieces(word):
                ids += self.encode(word[1:])
                continue
            table = self.lattice(word)
            word_ids = []  # from the last to the first
            end = len(word)
            while end:
                starts, sums = table[end - 1]
                choice = bisect(sums, random.random() * sums[-1], hi=len(sums) - 1)
                start = starts[choice]
                word_ids.append(self.ids[word[start:end]])
                end = start
            ids += reversed(word_ids)
        return ids

    def _distance(self, random: Random) -> int:
        """Return the number of pairs that are taken before the next one that is left out."""
        if self.amount == 0:
            return _NEVER
        return int(math.log(1 - random.random()) / self.log_taken)

    def _merged(self, word: str, left_out: tuple[int, ...]) -> tuple[list[int], int]:
        """Return the ids of `word` if BPE leaves out some pairs, and the number of pairs looked at.

        The pair with the best score comes first, then the leftmost one.

        Args:
            left_out: numbers of pairs, in the order in which they are looked at.
        """
        scores = self.scores
        size = len(word)
        ends = list(range(1, size + 1))  # of the piece that starts there. 0: none does.
        starts = [0, *range(size)]  # of the piece that ends there
        # A pair is its score, for the order, and the start, the middle and the end of its text.
        pairs = [
            (-scores[word[at : at + 2]], at, at + 1, at + 2)
            for at in range(size - 1)
            if word[at : at + 2] in scores
        ]
        heapify(pairs)
        passed: list[tuple[float, int, int, int]] = []  # left out since the last merge
        count = 0
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
            ends[start] = end
            ends[middle] = 0
            starts[end] = start
            if start > 0:  # with the piece before
                first = starts[start]
                text = word[first:end]
                if text in scores:
                    heappush(pairs, (-scores[text], first, start, end))
            if end < size:  # with the piece after
                last = ends[end]
                text = word[start:last]
                if text in scores:
                    heappush(pairs, (-scores[text], start, end, last))
        ids = [self.ids[word[start:end]] for start, end in enumerate(ends) if end]
        return ids, count

    def _lattice(self, word: str) -> list[tuple[list[int], list[float]]]:
        """Return the starts of the pieces that end after each letter, and sums of their weights."""
        table = []
        logs = [0.0]  # logs[i]: of the sum over the segmentations of the first i letters
        for end in range(1, len(word) + 1):
            starts = []
            for start in range(max(0, end - self.longest), end):
                if word[start:end] in self.scores:
                    starts.append(start)
            terms = [logs[start] + self.amount * self.scores[word[start:end]] for start in starts]
            top = max(terms)
            sums = list(accumulate(math.exp(term - top) for term in terms))
            logs.append(top + math.log(sums[-1]))
            table.append((starts, sums))
        return table


def _words(text: str) -> list[str]:
    """Return the words, each with a space before it."""
    if not text:
        return []
    return [SPACE + word for word in text.split(" ")]
