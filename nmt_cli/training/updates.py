"""The updates of a run in their order, each with the micro-batches of one rank."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import tee
from typing import Any, NamedTuple

import numpy as np
import torch.distributed as dist

from nmt_cli.data.batching import BatchPlan, cut, load_batch
from nmt_cli.data.corpus import Corpus, Indices, Pairs, concatenated, selected
from nmt_cli.data.parallel import mapped
from nmt_cli.data.prefetch import prefetched
from nmt_cli.data.sentences import PlannedUpdate, changed
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

    @property
    def batches(self) -> list[Batch]:
        """The batches of this rank."""
        return [micro_batch.batch for micro_batch in self.share]


@dataclass(frozen=True)
class Updates:
    """Makes the updates of a run from its text."""

    corpus: Corpus
    plan: BatchPlan
    world: World
    micro_batches: int  # of an update on all ranks, as far as there is memory
    load: Load = load_batch  # sentences as a batch
    packed: bool = False  # a micro-batch mixes lengths, which fill bins. The updates stay the same.
    drawing: int = 1  # processes that draw text. 1: this one does.

    @contextmanager
    def following(
        self, micro_batches: int, epoch: int, position: int
    ) -> Iterator[Generator[Update]]:
        """Return the updates from `position` of `epoch` on, without end.

        In the context, a thread makes them ahead, or processes draw the text and a thread makes the
        rest. Each of n ranks draws every n-th sentence of an update.
        """
        changes = self.plan.text_changes()
        drawers = World(0, 1, self.world.device)
        if changes and dist.is_initialized():
            drawers = self.world.aside()

        def own(planned: PlannedUpdate) -> tuple[PlannedUpdate, Pairs]:
            # A process gets the ids, so it needs neither the corpus nor its memory.
            sentences = planned.sentences[drawers.rank :: drawers.size]
            return planned._replace(sentences=sentences), selected(self.corpus, sentences)

        def make(item: tuple[PlannedUpdate, tuple[Any, Pairs]]) -> Update:
            planned, (_, pairs) = item
            if drawers.size > 1:
                pairs = exchanged(pairs, len(planned.sentences), drawers)
            lengths = (pairs.source_lengths, pairs.target_lengths)
            return Update(*planned, lengths, self.share(pairs, micro_batches))

        plan, plan_of_own = tee(self.plan.updates(epoch, position))
        texts = mapped(changed, changes, map(own, plan_of_own), self.drawing, "spawn")
        items = zip(plan, texts, strict=True)
        with (
            closing(texts),
            closing(prefetched(make, items, AHEAD, self.world.device)) as updates,
        ):
            yield updates

    def text(self, epoch: int, sentences: Indices) -> Pairs:
        """Return these sentences of the corpus as they are trained on in this epoch."""
        planned = PlannedUpdate(epoch, 0, sentences, ends_epoch=False)
        return changed(self.plan.text_changes(), (planned, selected(self.corpus, sentences)))

    def share(self, pairs: Pairs, count: int) -> list[MicroBatch]:
        """Return this rank's micro-batches of an update with these sentences, cut into `count`.

        All ranks get equally many, because they communicate in each. So some get the first one
        again, without weight.
        """
        world = self.world
        per_token = 1 / int(pairs.target_lengths.sum())
        cuts = cut(pairs.source_lengths, pairs.target_lengths, count, self.packed)
        planned = [(number, places, per_token) for number, places in enumerate(cuts) if len(places)]
        first_number, first_places, _ = planned[0]
        missing = -len(planned) % world.size
        planned += [(first_number, first_places, 0.0)] * missing
        share = []
        for number, places, weight in planned[world.rank :: world.size]:
            share.append(MicroBatch(number, self.load(pairs, places), weight))
        return share


def exchanged(part: Pairs, count: int, world: World) -> Pairs:
    """Return the text of an update of `count` sentences, of which each rank has every n-th."""
    of_ranks = [np.arange(rank, count, world.size) for rank in range(world.size)]
    return selected(concatenated(world.gather(part)), np.concatenate(of_ranks).argsort())
