"""The updates of a run in their order, each with the micro-batches of one rank."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from typing import NamedTuple

from nmt_cli.data.batching import cut
from nmt_cli.data.corpus import Indices, Pairs, Selection
from nmt_cli.data.prefetch import prefetched
from nmt_cli.device import Load
from nmt_cli.distributed import World
from nmt_cli.interfaces import Batch
from nmt_cli.training.setup import Setup

AHEAD = 2  # updates whose batches are made before they are needed


class MicroBatch(NamedTuple):
    number: int  # in the update
    batch: Batch
    weight: float  # of its loss: 1 / target tokens of the update


class Update(NamedTuple):
    epoch: int
    position: int  # in the epoch
    sentences: Indices
    ends_epoch: bool  # it is the epoch's last
    lengths: tuple[Indices, Indices]  # of sources and targets as they are trained on, EOS included
    share: list[MicroBatch]  # that this rank computes: at least one


def updates(setup: Setup, micro_batches: int, epoch: int, position: int) -> closing[Generator[Update]]:
    """Return the updates from `position` of `epoch` on, without end; in the context, a thread makes them ahead."""

    def make(place: tuple[int, int, Indices, bool]) -> Update:
        epoch, _, sentences, _ = place
        pairs = text_of(setup, epoch, sentences)
        batches = share(pairs, setup.world, micro_batches, setup.load, setup.packed)
        return Update(*place, (pairs.source_lengths, pairs.target_lengths), batches)

    return closing(prefetched(make, setup.plan.updates(epoch, position), AHEAD, setup.world.device))


def text_of(setup: Setup, epoch: int, sentences: Indices) -> Pairs:
    """Return these sentences of the corpus as they are trained on in this epoch."""
    pairs: Pairs = Selection(setup.corpus, sentences)
    for change in setup.plan.changes:
        pairs = change.text(epoch, sentences, pairs)
    return pairs


def share(pairs: Pairs, world: World, count: int, load: Load, packed: bool = False) -> list[MicroBatch]:
    """Return this rank's micro-batches of an update, given by its sentences, that has `count` of them.

    All ranks get equally many, because they communicate in each: some one of another rank, without weight.
    """
    cuts = cut(pairs.source_lengths, pairs.target_lengths, count, packed)
    filled = [(number, indices) for number, indices in enumerate(cuts) if len(indices)]
    weight = 1 / int(pairs.target_lengths.sum())
    shared = [(*each, weight) for each in filled] + [(*filled[0], 0.0)] * (-len(filled) % world.size)
    return [
        MicroBatch(number, load(pairs, indices), weight) for number, indices, weight in shared[world.rank :: world.size]
    ]
