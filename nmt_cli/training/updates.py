"""The updates of a run in their order, each with the micro-batches of one rank."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from nmt_cli.data.batching import BatchPlan, Indices, load_batch
from nmt_cli.data.corpus import Corpus
from nmt_cli.data.prefetch import Prefetcher
from nmt_cli.distributed import World
from nmt_cli.interfaces import Batch

AHEAD = 2  # updates whose batches are made before they are needed


class Piece(NamedTuple):
    """A micro-batch of an update."""

    number: int  # in the update
    batch: Batch
    weight: float  # of its loss: 1 / target tokens of the update


class Update(NamedTuple):
    """An update, and the pieces of it that a rank computes: at least one."""

    epoch: int
    position: int  # in the epoch
    sentences: Indices
    ends_epoch: bool  # it is the epoch's last
    share: list[Piece]


def updates(
    plan: BatchPlan, corpus: Corpus, world: World, micro_batches: int, epoch: int, position: int
) -> Prefetcher[Any, Update]:
    """Return the updates from `position` of `epoch` on, without end; a thread makes them ahead."""

    def make(place: tuple[int, int, Indices, bool]) -> Update:
        return Update(*place, share(plan, corpus, world, place[2], micro_batches))

    return Prefetcher(make, plan.updates(epoch, position), AHEAD, world.device)


def share(plan: BatchPlan, corpus: Corpus, world: World, sentences: Indices, micro_batches: int) -> list[Piece]:
    """Return this rank's pieces of an update.

    In an update of fewer sentences than ranks, some have no piece. They get one of another rank, without weight,
    because all ranks take part in the sum of the gradients.
    """
    pieces = [(number, part) for number, part in enumerate(plan.pieces(sentences, micro_batches)) if len(part)]
    own = [(number, part) for number, part in pieces if number % world.size == world.rank]
    weight = 1 / plan.target_tokens(sentences) if own else 0.0
    return [Piece(number, load(plan, corpus, part, world.device), weight) for number, part in own or pieces[:1]]


def load(plan: BatchPlan, corpus: Corpus, piece: Indices, device: torch.device) -> Batch:
    """Return a piece that can be moved to `device` while it computes."""
    batch = load_batch(corpus, piece, plan.packed)
    return batch.pinned() if device.type == "cuda" else batch
