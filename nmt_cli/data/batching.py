"""The batches of section 5.1: a plan that depends only on lengths, seed, epoch and batch size.

An update consists of groups of sentences of similar length, drawn at random, as the paper's was
divided among eight GPUs. So an update of several groups mixes lengths. To be computed, it is cut
into micro-batches, whose number is free.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, count, islice, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nmt_cli.data.corpus import Indices, Lengths, Pairs, Part
from nmt_cli.data.sentences import PlannedUpdate, Sentences
from nmt_cli.interfaces import BOS, EOS, PAD, Batch, ragged

if TYPE_CHECKING:
    from nmt_cli.interfaces import Ragged

POOL = 1 << 18  # sentences whose groups are formed and shuffled together

_CHUNKS = 1 << 22
"""A larger corpus is divided among the pools in this many chunks of neighbours.

So the random order takes 16 MiB for a corpus of any size.
"""


def groups_of_update(batch_tokens: int) -> int:
    """Return the number of groups of an update: 8, the paper's GPUs, or fewer if it is small."""
    for groups in (8, 4, 2):
        if batch_tokens // groups >= 2048:
            return groups
    return 1


def default_micro_batches(batch_tokens: int, ranks: int, limit: int, packed: bool = False) -> int:
    """Return the default number of micro-batches of an update, a multiple of `ranks`.

    One has up to `limit` tokens on each side. Unless it is packed, it is a group or an even share
    of one. Other numbers have more padding.
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
    parts: Sequence[Part] = ()  # empty: all sentences are one part of weight 1
    batch_sentences: int | None = None  # at most, in an update
    changes: Sequence[Sentences] = ()  # of the sentences, by epoch

    def tokens(self, epoch: int) -> int:
        """Return the maximum of tokens in an update of this epoch."""
        return self._limit(epoch, self.batch_tokens)

    def begins(self) -> list[int]:
        """Return the epochs whose weights or limits may differ from the epoch before, in order."""
        return sorted({0}.union(*(change.begins for change in self.changes)))

    def text_changes(self) -> list[Sentences]:
        """Return the changes that draw text."""
        return [change for change in self.changes if type(change).text is not Sentences.text]

    def full_epoch(self) -> int:
        """Return the first epoch that has updates of the largest size."""
        return max(self.begins(), key=self.tokens)

    def epoch(self, number: int) -> Iterator[Indices]:
        """Yield the updates of epoch `number`, the first of which is 0.

        A sentence of weight w is in w of them, or several times in one. The last update of a pool
        may be smaller.
        """
        random = np.random.default_rng((self.seed, number))
        size = groups_of_update(self.tokens(number))
        group_sentences = None
        if self.batch_sentences is not None:
            sentences = max(1, self._limit(number, self.batch_sentences))
            size = min(size, sentences)
            group_sentences = sentences // size
        group_tokens = self.tokens(number) // size
        for pool in self._pools(random, number):
            source, target = self.source_lengths[pool], self.target_lengths[pool]
            groups = length_buckets(source, target, group_tokens, random, group_sentences)
            order = random.permutation(len(groups))
            for start in range(0, len(order), size):
                drawn = [groups[i] for i in order[start : start + size]]
                yield pool[np.concatenate(drawn)]

    def updates(self, epoch: int, position: int) -> Iterator[PlannedUpdate]:
        """Yield updates without end.

        The first one is update `position` of `epoch`. The updates of later epochs follow.
        """
        for number in count(epoch):
            with_next = pairwise(chain(self.epoch(number), [None]))
            for place, (update, following) in enumerate(with_next):
                if number == epoch and place < position:
                    continue
                assert update is not None  # only `following` may be
                yield PlannedUpdate(number, place, update, following is None)

    def size(self, epoch: int = 0) -> int:
        """The sentences of an epoch, each as often as its weight says."""
        counts, _ = self._counts(epoch)
        return int(counts.sum())

    def samples(self, count: int) -> Iterator[tuple[int, float, list[Indices]]]:
        """Yield each epoch that differs from the one before, the next such epoch, and its updates.

        They are the first `count` updates of the epoch, or all.
        """
        starts = self.begins()
        for start, end in zip(starts, [*starts[1:], math.inf], strict=True):
            yield start, end, list(islice(self.epoch(start), count))

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
        return self.parts or [Part(0, len(self.source_lengths), weight=1)]

    def _counts(self, epoch: int) -> tuple[Indices, Indices]:
        """Return each part's sentences in an epoch, and in earlier epochs beyond whole copies.

        Both are numbers of sentences, [parts]. A copy is all sentences of the part once.
        """
        sizes = np.array([part.end - part.first for part in self._parts()])
        counts = before = np.zeros(len(sizes), np.int64)
        starts = [start for start in self.begins() if start <= epoch]
        for start, end in pairwise([*starts, epoch]):
            weights: Sequence[float] = [part.weight for part in self._parts()]
            for change in self.changes:
                weights = change.weights(start, weights)
            ends = np.rint(np.cumsum(sizes * np.array(weights)))  # the sum is the nearest to exact
            counts = np.diff(ends.astype(np.int64), prepend=0)
            beyond_copies = counts % np.maximum(sizes, 1)
            before = before + (end - start) * beyond_copies
        return counts, before

    def _pools(self, random: np.random.Generator, epoch: int) -> Iterator[Indices]:
        """Yield all sentences, as often as their weights say, in pools of similar size."""
        first = np.array([part.first for part in self._parts()])
        sizes = np.array([part.end for part in self._parts()]) - first
        counts, before = self._counts(epoch)
        in_copies = counts - counts % np.maximum(sizes, 1)  # sentences in whole copies of the part
        strides = np.array([stride(size) for size in sizes.tolist()])
        ends = np.cumsum(counts)
        total = int(ends[-1])
        chunk = -(-total // _CHUNKS)  # sentences
        order = np.arange(-(-total // chunk), dtype=np.int32)  # [chunks]
        random.shuffle(order)
        for chunks in np.array_split(order, -(-total // POOL)):
            # The places of sentences in the epoch, which has one part after the other.
            places = (chunks[:, None] * np.int64(chunk) + np.arange(chunk)).ravel()
            places = places[places < total]
            part = np.searchsorted(ends, places, side="right")
            places -= (ends - counts)[part]
            beyond = np.flatnonzero(places >= in_copies[part])
            part_beyond = part[beyond]
            turns = (before[part_beyond] + places[beyond]) % sizes[part_beyond]
            places[beyond] = turns * strides[part_beyond]
            yield first[part] + places % sizes[part]


def stride(size: int) -> int:
    """Return a number whose multiples modulo `size` are all numbers below it, evenly spread.

    Few multiples are spread evenly, too: divided by `size`, the number has a continued fraction of
    small terms (Niederreiter 1992, section 3.1).
    """

    def largest_term(number: int) -> int:
        rest, largest = size, 0
        while number:
            largest = max(largest, rest // number)
            rest, number = number, rest % number
        if rest != 1:  # a common divisor with `size`: not all numbers are multiples
            return size + 1
        return largest

    middle = round(0.618034 * size)  # the golden section has the smallest terms
    return min(range(max(1, middle - 50), middle + 50), key=largest_term)


def length_buckets(
    source_lengths: NDArray[Any],
    target_lengths: NDArray[Any],
    tokens: int,
    random: np.random.Generator | None = None,
    sentences: int | None = None,
) -> list[Indices]:
    """Group sentences of similar length. A padded group has at most `tokens` tokens on each side.

    Args:
        source_lengths, target_lengths: [sentences].
        tokens: a sentence longer than that is a group of its own.
        random: shuffles sentences of equal lengths.
        sentences: the maximum in a group.
    """
    if random is None:
        order = np.arange(len(source_lengths))
    else:
        order = random.permutation(len(source_lengths))
    longest = np.maximum(source_lengths, target_lengths)
    narrow = np.min_scalar_type(longest.max(initial=0))  # NumPy sorts 16 bits in linear time
    keys = source_lengths[order].astype(narrow), longest[order].astype(narrow)
    order = order[np.lexsort(keys)]
    ordered = longest[order]
    most = sentences or len(order)
    groups = []
    start = 0
    while start < len(order):
        # As many sentences as fit if all are as short as the first one, then fewer until they fit.
        end = min(len(order), start + most, start + max(1, tokens // int(ordered[start])))
        while end - start > 1 and (end - start) * int(ordered[end - 1]) > tokens:
            end = start + max(1, tokens // int(ordered[end - 1]))
        groups.append(order[start:end])
        start = end
    return groups


def cut(
    source_lengths: NDArray[Any], target_lengths: NDArray[Any], count: int, packed: bool = False
) -> list[Indices]:
    """Cut sentences into `count` micro-batches by length, of about as many tokens with padding.

    If they are `packed`, the sentences are dealt out instead, back and forth. A micro-batch is
    empty only if there are fewer sentences.
    """
    longest = np.maximum(source_lengths, target_lengths)
    order = np.lexsort((source_lengths, longest))
    if not packed:
        return np.split(order, even_cuts(longest[order], count))
    turns = np.arange(len(order)) % (2 * count)
    numbers = np.minimum(turns, 2 * count - 1 - turns)  # 0, 1, 2, 2, 1, 0, 0, 1, ... for 3
    return [order[numbers == number] for number in range(count)]


def even_cuts(lengths: NDArray[Any], count: int) -> list[int]:
    """Return where to cut sentences of ascending `lengths` into `count` micro-batches.

    The largest is as small as can be, to a hundredth. The size of one is its number of sentences
    times the longest.
    """
    sentences = len(lengths)
    longest = int(lengths[-1])
    numbers = np.arange(1, sentences + 1)

    def cuts(size: int) -> list[int]:
        """Fill all but the last up to `size`, but leave a sentence for each."""
        start = 0
        starts = []
        for left in range(count - 1, 0, -1):
            sizes = lengths[start:] * numbers[: sentences - start]  # of the first 1, 2, ... left
            fitting = int(np.searchsorted(sizes, size, "right"))
            start = min(start + max(1, fitting), max(start, sentences - left))
            starts.append(start)
        return starts

    def fits(size: int) -> bool:
        last_start = max(cuts(size), default=0)
        return (sentences - last_start) * longest <= size

    low, high = int(lengths.sum()) // count, sentences * longest
    sizes = range(low, high, max(1, low // 100))
    smallest = bisect_left(sizes, True, key=fits)
    if smallest == len(sizes):
        return cuts(high)
    return cuts(sizes[smallest])


def collate(sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> Batch:
    """Pad sentence pairs (ids without BOS and EOS) into a `Batch`."""
    return _batch(ragged(sources), ragged(targets))


def load_batch(pairs: Pairs, indices: Indices) -> Batch:
    """Return the sentences `indices` of `pairs` as a `Batch`."""
    return _batch(pairs.ids("source", indices), pairs.ids("target", indices))


def pad(rows: Sequence[Sequence[int]]) -> Tensor:
    """Pad rows of ids with `PAD` on the right: [rows, longest] int64."""
    return torch.from_numpy(_padded(*ragged(rows)))


def _padded(ids: NDArray[Any], lengths: Indices, more: int = 0) -> Indices:
    """Return padded sentences [sentences, longest + more], given their ids in one array."""
    width = int(lengths.max()) + more
    rows = np.full((len(lengths), width), PAD, dtype=np.int64)
    rows[np.arange(width) < lengths[:, None]] = ids
    return rows


def _batch(sources: Ragged, targets: Ragged) -> Batch:
    """Return the batch of sentence pairs, given the ids and lengths of both sides."""
    source_ids, source_lengths = sources
    target_ids, target_lengths = targets
    rows = np.arange(len(source_lengths))
    source = _padded(source_ids, source_lengths, more=1)  # [B, S]
    source[rows, source_lengths] = EOS
    target_out = _padded(target_ids, target_lengths, more=1)  # [B, T]
    target_in = np.insert(target_out[:, :-1], 0, BOS, axis=1)  # [B, T]
    target_out[rows, target_lengths] = EOS
    return Batch(
        torch.from_numpy(source),
        torch.from_numpy(target_in),
        torch.from_numpy(target_out),
        num_tokens=len(target_ids) + len(rows),  # EOS included
    )
