"""The updates of a run in their order, each with the micro-batches of one rank."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from nmt_cli.data.batching import BatchPlan, Indices, load_batch
from nmt_cli.data.corpus import Corpus
from nmt_cli.data.prefetch import Prefetcher
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


def updates(setup: Setup, micro_batches: int, epoch: int, position: int) -> Prefetcher[Any, Update]:
    """Return the updates from `position` of `epoch` on, without end; a thread makes them ahead."""

    def make(place: tuple[int, int, Indices, bool]) -> Update:
        plan, corpus, sentences = setup.variants.of(setup.plan, setup.corpus, place[0], place[2])
        lengths = plan.source_lengths[sentences], plan.target_lengths[sentences]
        return Update(*place, lengths, share(plan, corpus, setup.world, sentences, micro_batches))

    return Prefetcher(make, setup.plan.updates(epoch, position), AHEAD, setup.world.device)


def share(plan: BatchPlan, corpus: Corpus, world: World, sentences: Indices, count: int) -> list[MicroBatch]:
    """Return this rank's micro-batches of an update that has `count` of them.

    All ranks get equally many, because they communicate in each: some one of another rank, without weight.
    """
    filled = [(number, indices) for number, indices in enumerate(plan.micro_batches(sentences, count)) if len(indices)]
    weight = 1 / plan.target_tokens(sentences)
    shared = [(*each, weight) for each in filled] + [(*filled[0], 0.0)] * (-len(filled) % world.size)
    return [
        MicroBatch(number, read_batch(plan, corpus, indices, world.device), weight)
        for number, indices, weight in shared[world.rank :: world.size]
    ]


def read_batch(plan: BatchPlan, corpus: Corpus, indices: Indices, device: torch.device) -> Batch:
    """Return a batch that can be moved to `device` while it computes."""
    batch = load_batch(corpus, indices, plan.packed)
    return batch.pinned() if device.type == "cuda" else batch
