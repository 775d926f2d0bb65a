"""The updates of a run in their order, each with the micro-batches of one rank."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import NamedTuple

from nmt_cli.data.batching import BatchPlan, Indices, load_batch
from nmt_cli.data.corpus import Corpus
from nmt_cli.device import World
from nmt_cli.interfaces import Batch


class Piece(NamedTuple):
    """A micro-batch of an update."""

    number: int  # in the update
    batch: Batch
    weight: float  # of its loss: 1 / target tokens of the update


class Update(NamedTuple):
    """An update, and this rank's share of it: at least one piece."""

    epoch: int
    position: int  # in the epoch, after this update
    sentences: Indices
    share: list[Piece]


def updates(
    plan: BatchPlan, corpus: Corpus, world: World, micro_batches: int, epoch: int, position: int
) -> Iterator[Update]:
    """Yield the updates from `position` of `epoch` on, without end."""
    for number in count(epoch):
        start = position if number == epoch else 0
        for after, sentences in enumerate(plan.epoch(number, start), start + 1):
            yield Update(number, after, sentences, share(plan, corpus, world, micro_batches, sentences))


def share(plan: BatchPlan, corpus: Corpus, world: World, micro_batches: int, sentences: Indices) -> list[Piece]:
    """Return this rank's pieces of an update.

    An update with fewer sentences than ranks leaves some without a piece. These get one of another rank, without
    weight, because all ranks take part in the sum of the gradients.
    """
    pieces = [(number, part) for number, part in enumerate(plan.pieces(sentences, micro_batches)) if len(part)]
    own = [(number, part) for number, part in pieces if number % world.size == world.rank]
    weight = 1 / plan.target_tokens(sentences) if own else 0.0
    return [Piece(number, load_batch(corpus, part), weight) for number, part in own or pieces[:1]]
