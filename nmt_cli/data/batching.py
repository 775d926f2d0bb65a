"""The batches of section 5.1: a plan of updates that depends only on lengths, seed, epoch and batch size.

An update consists of micro-batches, as the paper's was divided among eight GPUs. A micro-batch holds sentences of
similar length; an update mixes lengths. The number of processes does not change the plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nmt_cli.data.corpus import Corpus
from nmt_cli.interfaces import BOS, EOS, PAD, Batch

Indices = NDArray[np.int64]


def derived_micro_batches(batch_tokens: int) -> int:
    """Return the default number of micro-batches: 8, the paper's GPUs, or another power of 2 for other batch sizes.

    A micro-batch has at least 1,024 tokens, to fill a CPU's matrix product, and at most 8,192, to fit on a GPU.
    """
    count = 1
    while (count < 8 and batch_tokens // (2 * count) >= 1024) or batch_tokens / count > 8192:
        count *= 2
    return count


@dataclass(frozen=True)
class BatchPlan:
    """The updates of every epoch.

    Args:
        source_lengths, target_lengths: tokens of each sentence, EOS included: [sentences].
        batch_tokens: maximum number of source tokens, and of target tokens, in an update, padding included.
        micro_batches: number of micro-batches in an update.
    """

    source_lengths: NDArray[np.int64]
    target_lengths: NDArray[np.int64]
    batch_tokens: int
    micro_batches: int
    seed: int

    def epoch(self, number: int) -> list[list[Indices]]:
        """Return the updates of epoch `number` (the first is 0): lists of micro-batches that hold every sentence once.

        The last update may have fewer micro-batches.
        """
        random = np.random.default_rng((self.seed, number))
        buckets = length_buckets(
            self.source_lengths, self.target_lengths, self.batch_tokens // self.micro_batches, random
        )
        order = random.permutation(len(buckets))
        shuffled = [buckets[i] for i in order]
        return [shuffled[i : i + self.micro_batches] for i in range(0, len(shuffled), self.micro_batches)]

    def padded_lengths(self, indices: Indices) -> NDArray[np.int64]:
        """The padded lengths of a micro-batch: [longest source, longest target]."""
        return np.array([self.source_lengths[indices].max(), self.target_lengths[indices].max()])

    def target_tokens(self, update: Sequence[Indices]) -> int:
        """Target tokens of an update, without padding."""
        return sum(int(self.target_lengths[indices].sum()) for indices in update)


def length_buckets(
    source_lengths: NDArray[np.int64],
    target_lengths: NDArray[np.int64],
    tokens: int,
    random: np.random.Generator | None = None,
) -> list[Indices]:
    """Group sentences of similar length; a padded group has at most `tokens` source and `tokens` target tokens.

    A sentence longer than `tokens` is a group of its own. With `random`, sentences of equal lengths are shuffled.
    """
    longest = np.maximum(source_lengths, target_lengths)
    ties = np.arange(len(longest)) if random is None else random.permutation(len(longest))
    order = np.lexsort((ties, source_lengths, longest))
    ordered = longest[order]
    groups = []
    start = 0
    while start < len(order):
        end = min(len(order), start + max(1, tokens // int(ordered[start])))
        while end - start > 1 and (end - start) * int(ordered[end - 1]) > tokens:
            end = start + max(1, tokens // int(ordered[end - 1]))
        groups.append(order[start:end])
        start = end
    return groups


def collate(sources: Sequence[NDArray[np.int64]], targets: Sequence[NDArray[np.int64]]) -> Batch:
    """Pad sentence pairs (ids without BOS and EOS) into a `Batch`."""
    begin, end = np.array([BOS]), np.array([EOS])
    return Batch(
        source=pad([np.concatenate([ids, end]) for ids in sources]),
        target_in=pad([np.concatenate([begin, ids]) for ids in targets]),
        target_out=pad([np.concatenate([ids, end]) for ids in targets]),
        num_tokens=sum(len(ids) + 1 for ids in targets),
    )


def pad(rows: Sequence[NDArray[np.int64] | Sequence[int]]) -> Tensor:
    """Pad rows of ids with `PAD` on the right: [rows, longest] int64."""
    matrix = np.full((len(rows), max(map(len, rows))), PAD, dtype=np.int64)
    for row, ids in zip(matrix, rows, strict=True):
        row[: len(ids)] = ids
    return torch.from_numpy(matrix)


def load_batch(corpus: Corpus, indices: Indices) -> Batch:
    """Return the sentences `indices` of `corpus` as a `Batch`."""
    return collate([corpus.source(int(i)) for i in indices], [corpus.target(int(i)) for i in indices])


def sentence_lengths(corpus: Corpus) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the source and target lengths of every sentence, EOS included."""
    return corpus.source_lengths.astype(np.int64) + 1, corpus.target_lengths.astype(np.int64) + 1
