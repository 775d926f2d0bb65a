"""The updates of a run in their order, each with the micro-batches of one rank."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass
from typing import NamedTuple

from nmt_cli.data.batching import BatchPlan, cut, load_batch
from nmt_cli.data.corpus import Corpus, Indices, Pairs, Selection
from nmt_cli.data.prefetch import prefetched
from nmt_cli.device import Load
from nmt_cli.distributed import World
from nmt_cli.interfaces import Batch

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


@dataclass(frozen=True)
class Updates:
    """Makes the updates of a run from its text."""

    corpus: Corpus
    plan: BatchPlan
    world: World
    micro_batches: int  # of an update on all ranks, as far as there is memory
    load: Load = load_batch  # sentences as a batch
    # A micro-batch mixes lengths, which fill bins; the updates do not depend on it.
    packed: bool = False

    def following(
        self, micro_batches: int, epoch: int, position: int
    ) -> closing[Generator[Update]]:
        """Return the updates from `position` of `epoch` on, without end; in the context, a thread
        makes them ahead.
        """

        def make(place: tuple[int, int, Indices, bool]) -> Update:
            epoch, _, sentences, _ = place
            pairs = self.text(epoch, sentences)
            lengths = pairs.source_lengths, pairs.target_lengths
            return Update(*place, lengths, self.share(pairs, micro_batches))

        return closing(
            prefetched(make, self.plan.updates(epoch, position), AHEAD, self.world.device)
        )

    def text(self, epoch: int, sentences: Indices) -> Pairs:
        """Return these sentences of the corpus as they are trained on in this epoch."""
        pairs: Pairs = Selection(self.corpus, sentences)
        for change in self.plan.changes:
            pairs = change.text(epoch, sentences, pairs)
        return pairs

    def share(self, pairs: Pairs, count: int) -> list[MicroBatch]:
        """Return this rank's micro-batches of an update, given by its sentences, that has `count`
        of them.

        All ranks get equally many, because they communicate in each: some one of another rank,
        without weight.
        """
        cuts = cut(pairs.source_lengths, pairs.target_lengths, count, self.packed)
        filled = [(number, indices) for number, indices in enumerate(cuts) if len(indices)]
        weight = 1 / int(pairs.target_lengths.sum())
        world = self.world
        missing = -len(filled) % world.size
        shared = [(*each, weight) for each in filled] + [(*filled[0], 0.0)] * missing
        return [
            MicroBatch(number, self.load(pairs, indices), weight)
            for number, indices, weight in shared[world.rank :: world.size]
        ]
