"""A search on a GPU: a few steps of constant shapes in a CUDA graph, launched without waiting.

The sentences of all batches of a call are one queue. A search has places for some of them, and the
place of a sentence that is done gets the next one, so that a step computes as many as it can. The
host asks every few steps which sentences are done, and reads the answer as many steps later. The
next batch is encoded meanwhile.
"""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby, islice
from typing import Any, NamedTuple

import torch
from torch import Tensor

from nmt_cli.decoding.beam_search import check_probabilities
from nmt_cli.decoding.options import SearchSettings
from nmt_cli.fast.cuda.copies import OnHost, on_device, side_stream
from nmt_cli.fast.cuda.encoded_batch import EncodedBatch
from nmt_cli.fast.cuda.fixed_search import ASKED, FixedSearch, fixed
from nmt_cli.fast.cuda.fixed_state import Shape
from nmt_cli.fast.inference import FrozenTransformer
from nmt_cli.interfaces import Hypothesis

FEWEST = 8  # places
KEPT = 16  # sets of tensors of a model
MOST = 8192  # hypotheses of all steps of a sentence, whose caches are allocated at its start

_lock = threading.Lock()  # threads share a translator, and all graphs of a device share memory


class GraphSearch:
    """A search with a model that `takes` it: see `Plain.search`.

    Args:
        otherwise: the search for what has a constraint, more steps than caches are allocated for,
            or options that have no `steps`.
    """

    def __init__(
        self,
        model: FrozenTransformer,
        otherwise: Callable[..., Iterator[list[list[Hypothesis]]]],
        device: torch.device,
    ) -> None:
        self.model, self.otherwise, self.device = model, otherwise, device
        self.searches: dict[Shape, FixedSearch] = {}  # that are not in use
        self.stream = side_stream(device)

    def __call__(self, batches: Iterable[Sequence[Any]]) -> Iterator[list[list[Hypothesis]]]:
        """See `Plain.search`."""
        for options, group in groupby(batches, _fixed_options):
            if options is None:
                yield from self.otherwise(group)
            else:
                yield from self._in_turns(Queue(self, group, options).results())

    def _in_turns(self, results: Iterator[Any]) -> Iterator[list[list[Hypothesis]]]:
        """Yield the results. Other threads search between two of them."""
        # Graphs are captured for the current device. -1 changes nothing.
        index = -1 if self.device.index is None else self.device.index
        while True:
            with _lock, torch.cuda.device(index), torch.inference_mode():
                try:
                    outputs = next(results, None)
                # Such as no memory, whose type depends on the library that asked for it.
                except RuntimeError:
                    self.searches.clear()
                    raise
            if outputs is None:
                return
            yield outputs

    def taken(self, shape: Shape, like: EncodedBatch) -> FixedSearch:
        """Return a search without sentences, whose tensors are of the same types as `like`."""
        steps = shape.options.steps
        kind = FixedSearch if steps is None else fixed(steps.search)
        search = self.searches.pop(shape, None) or kind(self.model, shape, like)
        search.scores.fill_(-torch.inf)
        return search

    def put_back(self, search: FixedSearch) -> None:
        """Keep a search for the next queue."""
        self.searches[search.shape] = search
        if len(self.searches) > KEPT:
            del self.searches[next(iter(self.searches))]  # the oldest


def _fixed_options(batch: Sequence[Any]) -> SearchSettings | None:
    """Return the options of a batch, or None if it needs another search."""
    _, requests, options, constraint = batch
    steps = options.beam * max(request.limit for request in requests)
    is_fixed = options.run is None or options.steps is not None
    if is_fixed and constraint is None and steps < MOST:
        return replace(options, run=None)  # which may be a new one in each call
    return None


class Occupant(NamedTuple):
    """A sentence at a place."""

    batch: EncodedBatch
    row: int  # in the batch
    began: int  # after so many steps of the queue


class Queue:
    """Batches with the same options, and the search that has places for some of their sentences."""

    search: FixedSearch

    def __init__(
        self, owner: GraphSearch, batches: Iterable[Sequence[Any]], options: SearchSettings
    ) -> None:
        self.owner, self.options = owner, options
        self.batches = iter(batches)
        self.unfinished = deque[EncodedBatch]()  # those that are encoded, in order
        self.waiting = deque[
            EncodedBatch
        ]()  # of these, those with sentences that have had no place
        self.occupants: list[Occupant | None] = []  # of each place
        self.steps = 0

    def results(self) -> Iterator[list[list[Hypothesis]]]:
        """Yield the outputs of each batch, in order."""
        self._refill()
        while any(self.occupants):
            best = OnHost(self.search.scores.amax(1))
            self.steps += ASKED
            oldest = min(occupant.began for occupant in self.occupants if occupant is not None)
            self.search.run(self.steps - oldest)
            self._encode(2)
            while not self.unfinished[0].missing:
                yield self.unfinished.popleft().results(self.options.nbest)
            self._collect(*best.wait())
            self._refill()
        for batch in self.unfinished:
            yield batch.results(self.options.nbest)
        self.owner.put_back(self.search)

    def _collect(self, best: Tensor) -> None:
        """Free the places of the sentences that are done: `best` [A] has their score -inf."""
        check_probabilities(best)
        done = defaultdict[EncodedBatch, list[tuple[int, int]]](list)
        for place, score in enumerate(best.tolist()):
            occupant = self.occupants[place]
            if occupant is not None and score == -torch.inf:
                done[occupant.batch].append((place, occupant.row))
                self.occupants[place] = None
        for batch, sentences in done.items():
            places, rows = on_device(torch.tensor(sentences).t(), self.owner.device)
            batch.collect(rows, self.search.results(places))

    def _refill(self) -> None:
        """Give the free places to the sentences that wait."""
        self._encode(1)
        while self.waiting:
            batch = self.waiting[0]
            if batch.encoded is not None:
                batch.encoded.wait()  # on the GPU, also for a table of positions
            self._fit(batch)
            free = [place for place, occupant in enumerate(self.occupants) if occupant is None]
            places = free[: len(batch.limits) - batch.begun]
            if not places:
                return
            for row, place in enumerate(places, batch.begun):
                self.occupants[place] = Occupant(batch, row, self.steps)
            self.search.begin(batch, places)
            if batch.begun == len(batch.limits):
                del self.waiting.popleft().state
                self._encode(1)

    def _encode(self, number: int) -> None:
        """Encode batches until so many wait, beside the search."""
        stream = self.owner.stream
        for arguments in islice(self.batches, max(0, number - len(self.waiting))):
            if stream is not None:
                # The search may still read what the last batch had in the memory of this one.
                stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                batch = EncodedBatch(self.owner.model, self.owner.device, *arguments)
            self.waiting.append(batch)
            self.unfinished.append(batch)

    def _fit(self, batch: EncodedBatch) -> None:
        """Have a search with room for this batch and the unfinished ones, and no more."""
        unfinished = [batch for batch in self.unfinished if batch.missing]
        columns = max(batch.columns for batch in unfinished)
        positions = max(batch.positions for batch in unfinished)
        occupied = [place for place, occupant in enumerate(self.occupants) if occupant is not None]
        places = max(FEWEST, len(batch.limits), len(occupied))
        shape = Shape(self.options, 1 << (places - 1).bit_length(), columns, positions)
        if not self.occupants:
            self.search = self.owner.taken(shape, batch)
        elif (columns, positions) != (self.search.shape.columns, self.search.shape.positions):
            before = self.search
            self.search = self.owner.taken(shape, batch)
            self.search.load(before, occupied)
            self.owner.put_back(before)
        else:
            return
        occupants = [self.occupants[place] for place in occupied]
        self.occupants = [*occupants, *[None] * (shape.places - len(occupants))]
