"""The batches of section 5.1: a plan of updates that depends only on lengths, seed, epoch and batch
size.

An update consists of groups of sentences of similar length, drawn at random, as the paper's was
divided among eight GPUs; so an update of several groups mixes lengths. To be computed, it is cut
into micro-batches, whose number is free.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, count, islice, pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nmt_cli.data.corpus import Indices, Lengths, Pairs, Part
from nmt_cli.data.sentences import Sentences
from nmt_cli.interfaces import BOS, EOS, PAD, Batch, joined

POOL = 1 << 18  # sentences whose groups are formed and shuffled together

_CHUNKS = 1 << 22
"""A larger corpus is divided among the pools in this many chunks of neighbours: 16 MiB for a corpus
of any size.
"""


def groups_of_update(batch_tokens: int) -> int:
    """Return the number of groups of an update: 8, the paper's GPUs, or a smaller power of 2 for
    small updates.
    """
    for groups in (8, 4, 2):
        if batch_tokens // groups >= 2048:
            return groups
    return 1


def default_micro_batches(batch_tokens: int, ranks: int, limit: int, packed: bool = False) -> int:
    """Return the default number of micro-batches of an update, a multiple of `ranks`.

    One has up to `limit` tokens on each side. Unless it is packed, it is a group or an even share
    of one; other numbers have more padding.
    """
    unit = 1 if packed else groups_of_update(batch_tokens)
    count = unit * -(-batch_tokens // (unit * limit))
    return -(-count // ranks) * ranks


@dataclass(frozen=True)
class BatchPlan:
    """The updates of every epoch.

    Pools of 262,144 sentences from all over the corpus are planned one after the other. So the
    first update is there at once, and the memory does not grow with the corpus.
    """

    source_lengths: NDArray[Any] | Lengths  # [sentences]: tokens of each, EOS included
    target_lengths: NDArray[Any] | Lengths  # [sentences]
    batch_tokens: int  # at most, of source and of target, in an update, padding in groups included
    seed: int
    parts: Sequence[Part] = ()  # by default one
    batch_sentences: int | None = None  # at most, in an update
    changes: Sequence[Sentences] = ()  # of the sentences, by epoch

    def tokens(self, epoch: int) -> int:
        """Return the maximum of tokens in an update of this epoch."""
        return self._limit(epoch, self.batch_tokens)

    def begins(self) -> list[int]:
        """Return the epochs whose weights or limits may differ from the epoch before, in order."""
        return sorted({0}.union(*(change.begins for change in self.changes)))

    def full_epoch(self) -> int:
        """Return the first epoch whose updates are as large as those of any."""
        return max(self.begins(), key=self.tokens)

    def epoch(self, number: int) -> Iterator[Indices]:
        """Yield the updates of epoch `number`, the first of which is 0.

        A sentence of weight w is in w of them, or several times in one. The last update of a pool
        may be smaller.
        """
        random = np.random.default_rng((self.seed, number))
        size, most = groups_of_update(self.tokens(number)), None
        if self.batch_sentences is not None:
            sentences = max(1, self._limit(number, self.batch_sentences))
            size = min(size, sentences)
            most = sentences // size
        for pool in self._pools(random, number):
            lengths = self.source_lengths[pool], self.target_lengths[pool]
            groups = length_buckets(*lengths, self.tokens(number) // size, random, most)
            order = random.permutation(len(groups))
            for i in range(0, len(order), size):
                yield pool[np.concatenate([groups[j] for j in order[i : i + size]])]

    def updates(self, epoch: int, position: int) -> Iterator[tuple[int, int, Indices, bool]]:
        """Yield epoch, position, sentences and whether it is the epoch's last, of each update from
        a position on.
        """
        for number in count(epoch):
            pairs = pairwise(chain(self.epoch(number), [None]))
            for place, (update, following) in islice(
                enumerate(pairs), position if number == epoch else 0, None
            ):
                assert update is not None
                yield number, place, update, following is None

    def size(self, epoch: int = 0) -> int:
        """The sentences of an epoch, each as often as its weight says."""
        return int(self._counts(epoch)[0].sum())

    def samples(self, count: int) -> Iterator[tuple[int, float, list[Indices]]]:
        """Yield each epoch that differs from the one before, the next such epoch, and up to `count`
        of its updates.
        """
        begins = self.begins()
        for begin, end in zip(begins, [*begins[1:], math.inf], strict=True):
            yield begin, end, list(islice(self.epoch(begin), count))

    def usual_tokens(self) -> int:
        """Tokens of a side of an update: the limit, or less if there is a limit of sentences."""
        if self.batch_sentences is None:
            return self.batch_tokens
        longest = np.maximum(self.source_lengths[:], self.target_lengths[:])
        return min(self.batch_tokens, round(self.batch_sentences * float(longest.mean())))

    def target_tokens(self, indices: Indices) -> int:
        """Target tokens of these sentences, without padding."""
        return int(self.target_lengths[indices].sum())

    def _limit(self, epoch: int, limit: int) -> int:
        for change in self.changes:
            limit = change.limit(epoch, limit)
        return limit

    def _parts(self) -> Sequence[Part]:
        return self.parts or [Part(0, len(self.source_lengths), 1)]

    def _counts(self, epoch: int) -> tuple[Indices, Indices]:
        """Return how many sentences of each part an epoch has, and how many came beyond whole
        copies before it.
        """
        sizes = np.array([part.end - part.first for part in self._parts()])
        counts = before = np.zeros(len(sizes), np.int64)
        for begin, end in pairwise([*(begin for begin in self.begins() if begin <= epoch), epoch]):
            weights: Sequence[float] = [part.weight for part in self._parts()]
            for change in self.changes:
                weights = change.weights(begin, weights)
            ends = np.rint(np.cumsum(sizes * np.array(weights)))  # the sum is the nearest to exact
            counts = np.diff(ends.astype(np.int64), prepend=0)
            before = before + (end - begin) * (counts % np.maximum(sizes, 1))
        return counts, before

    def _pools(self, random: np.random.Generator, epoch: int) -> Iterator[Indices]:
        """Yield all sentences, as often as their weights say, in pools of similar size."""
        first = np.array([part.first for part in self._parts()])
        sizes = np.array([part.end for part in self._parts()]) - first
        counts, before = self._counts(epoch)
        copies = counts - counts % np.maximum(sizes, 1)  # sentences in whole copies of the part
        strides = np.array([stride(n) for n in sizes.tolist()])
        ends = np.cumsum(counts)
        size = int(ends[-1])
        chunk = -(-size // _CHUNKS)
        order = np.arange(-(-size // chunk), dtype=np.int32)
        random.shuffle(order)
        for chunks in np.array_split(order, -(-size // POOL)):
            places = (chunks[:, None] * np.int64(chunk) + np.arange(chunk)).ravel()
            places = places[places < size]
            part = np.searchsorted(ends, places, side="right")
            places -= (ends - counts)[part]
            if len(rest := np.flatnonzero(places >= copies[part])):
                which = part[rest]
                places[rest] = (before[which] + places[rest]) % sizes[which] * strides[which]
            yield first[part] + places % sizes[part]


def stride(size: int) -> int:
    """Return a number whose multiples modulo `size` are all numbers below it, and spread evenly,
    however few they are.

    Divided by `size`, it has a continued fraction of small terms (Niederreiter 1992, section 3.1).
    """

    def largest_term(number: int) -> int:
        rest, largest = size, 0
        while number:
            largest = max(largest, rest // number)
            rest, number = number, rest % number
        return largest if rest == 1 else size + 1  # never one with a common divisor

    middle = round(0.618034 * size)  # the golden section has the smallest terms
    return min(range(max(1, middle - 50), middle + 50), key=largest_term)


def length_buckets(
    source_lengths: NDArray[Any],
    target_lengths: NDArray[Any],
    tokens: int,
    random: np.random.Generator | None = None,
    sentences: int | None = None,
) -> list[Indices]:
    """Group sentences of similar length; a padded group has at most `tokens` source and `tokens`
    target tokens.

    A sentence longer than `tokens` is a group of its own. With `random`, sentences of equal lengths
    are shuffled. No group has more than `sentences`.
    """
    order = (
        np.arange(len(source_lengths))
        if random is None
        else random.permutation(len(source_lengths))
    )
    longest = np.maximum(source_lengths, target_lengths)
    # NumPy sorts 16 bits in linear time.
    narrow = np.min_scalar_type(longest.max(initial=0))
    order = order[np.lexsort((source_lengths[order].astype(narrow), longest[order].astype(narrow)))]
    ordered = longest[order]
    groups = []
    start = 0
    while start < len(order):
        end = min(
            len(order),
            start + (sentences or len(order)),
            start + max(1, tokens // int(ordered[start])),
        )
        while end - start > 1 and (end - start) * int(ordered[end - 1]) > tokens:
            end = start + max(1, tokens // int(ordered[end - 1]))
        groups.append(order[start:end])
        start = end
    return groups


def cut(
    source_lengths: NDArray[Any], target_lengths: NDArray[Any], count: int, packed: bool = False
) -> list[Indices]:
    """Cut sentences of these lengths into `count` micro-batches of about as many tokens, with
    padding, by length.

    If they are `packed`, the sentences are dealt out instead, back and forth. One is empty only if
    there are fewer sentences.
    """
    longest = np.maximum(source_lengths, target_lengths)
    order = np.lexsort((source_lengths, longest))
    if not packed:
        return np.split(order, even_cuts(longest[order], count))
    turns = np.arange(len(order)) % (2 * count)
    owners = np.minimum(turns, 2 * count - 1 - turns)
    return [order[owners == owner] for owner in range(count)]


def even_cuts(lengths: NDArray[Any], count: int) -> list[int]:
    """Return where to cut sentences, given in the order of their `lengths`, into `count`
    micro-batches.

    The largest is as small as can be, to a hundredth; its size is the number of sentences times the
    longest.
    """
    sentences = len(lengths)
    numbers = np.arange(1, sentences + 1)
    low, high = int(lengths.sum()) // count, sentences * int(lengths[-1])

    def cuts(size: int) -> list[int]:
        """Fill all but the last up to `size`, but leave a sentence for each."""
        start, found = 0, []
        for left in range(count - 1, 0, -1):
            filled = start + max(
                1,
                int(np.searchsorted(lengths[start:] * numbers[: sentences - start], size, "right")),
            )
            start = min(filled, max(start, sentences - left))
            found.append(start)
        return found

    def fits(size: int) -> bool:
        return (sentences - max(cuts(size), default=0)) * int(lengths[-1]) <= size

    sizes = range(low, high, max(1, low // 100))
    at = bisect_left(sizes, True, key=fits)
    return cuts(sizes[at] if at < len(sizes) else high)


def collate(sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> Batch:
    """Pad sentence pairs (ids without BOS and EOS) into a `Batch`."""
    return _batch(joined(sources), joined(targets))


def load_batch(pairs: Pairs, indices: Indices) -> Batch:
    """Return the sentences `indices` of `pairs` as a `Batch`."""
    return _batch(pairs.ids("source", indices), pairs.ids("target", indices))


def pad(rows: Sequence[Sequence[int]]) -> Tensor:
    """Pad rows of ids with `PAD` on the right: [rows, longest] int64."""
    return torch.from_numpy(_padded(*joined(rows)))


def _padded(ids: NDArray[Any], lengths: Indices, more: int = 0) -> Indices:
    """Return padded sentences, given as all ids, one sentence after the other, and lengths, with
    `more` columns.
    """
    width = int(lengths.max()) + more
    rows = np.full((len(lengths), width), PAD, dtype=np.int64)
    rows[np.arange(width) < lengths[:, None]] = ids
    return rows


def _batch(sources: tuple[NDArray[Any], Indices], targets: tuple[NDArray[Any], Indices]) -> Batch:
    """Return padded sentences, given as for `_padded`."""
    source, target = _padded(*sources, more=1), _padded(*targets, more=1)
    target_in = np.insert(target[:, :-1], 0, BOS, axis=1)
    source[np.arange(len(source)), sources[1]] = EOS
    target[np.arange(len(target)), targets[1]] = EOS
    tokens = len(targets[0]) + len(target)
    return Batch(
        torch.from_numpy(source), torch.from_numpy(target_in), torch.from_numpy(target), tokens
    )
