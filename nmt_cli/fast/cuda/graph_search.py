"""Beam search on a GPU: a few steps of constant shapes in a CUDA graph, launched without waiting.

The sentences of all batches of a call are one queue. A search has places for some of them, and the
place of a sentence that is done gets the next one, so that a step computes as many as it can. The
host asks every few steps which sentences are done, and reads the answer as many steps later. The
next batch is encoded meanwhile.

The tensors of a search stay from call to call, a set for each shape: places, source columns and
target positions, in buckets. Letters are as in `beam_search.py`, where A counts the places. Some
have no sentence.
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, islice
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from nmt_cli.decoding.beam_search import (
    Candidates,
    History,
    Outputs,
    Search,
    check_probabilities,
    forbidden,
    hypotheses,
    restrict,
)
from nmt_cli.decoding.choice import topk
from nmt_cli.decoding.options import SearchSettings
from nmt_cli.fast.cuda.checks import kernels_of_step
from nmt_cli.fast.inference import CachedPast, FrozenTransformer, Step, TransformerState
from nmt_cli.interfaces import BOS, EOS, PAD, Hypothesis
from nmt_cli.layers.attention import Layout

ASKED = 2  # steps from one question to the next
COLUMNS = 32  # source columns, and positions that a step sees, are multiples of this
POSITIONS = 64  # the target positions of a search are multiples of this
FEWEST = 8  # places
KEPT = 16  # sets of tensors of a model
MOST = 8192  # hypotheses of all steps of a sentence, whose caches are allocated at its start

_lock = threading.Lock()  # threads share a translator, and all graphs of a device share memory
_graphs = defaultdict[int, weakref.WeakSet[Any]](weakref.WeakSet)  # the CUDA graphs of each device


@dataclass(frozen=True)
class Shape:
    """What must be equal for two searches to use the same tensors."""

    options: SearchSettings
    places: int
    columns: int  # of the source
    positions: int  # of the target, at most


class GraphSearch:
    """Beam search with a model that `takes` this search: see `Plain.search`.

    Args:
        otherwise: the search for what has a constraint, or more steps than caches are allocated
            for.
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

    def taken(self, shape: Shape, like: TransformerState) -> FixedSearch:
        """Return a search without sentences, whose caches are of the same types as `like`."""
        search = self.searches.pop(shape, None) or FixedSearch(self.model, shape, like)
        search.scores.fill_(-torch.inf)
        return search

    def put_back(self, search: FixedSearch) -> None:
        """Keep a search for the next queue."""
        self.searches[search.shape] = search
        if len(self.searches) > KEPT:
            del self.searches[next(iter(self.searches))]  # the oldest


def _fixed_options(batch: Sequence[Any]) -> SearchSettings | None:
    """Return the options of a batch, or None if it needs another search."""
    _, limits, options, constraint = batch
    if constraint is not None or max(limits) * options.beam >= MOST:
        return None
    return options


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
            best = OnHost(self.search.scores[:, 0])
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
            batch.collect(self.search, sentences)

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
            self.search = self.owner.taken(shape, batch.state)
        elif (columns, positions) != (self.search.shape.columns, self.search.shape.positions):
            before = self.search
            self.search = self.owner.taken(shape, batch.state)
            self.search.load(before, occupied)
            self.owner.put_back(before)
        else:
            return
        occupants = [self.occupants[place] for place in occupied]
        self.occupants = [*occupants, *[None] * (shape.places - len(occupants))]


class EncodedBatch:
    """The sentences of a batch, encoded, with the results of those that are done.

    Args:
        source, limits, options: see `beam_search`.
    """

    def __init__(
        self,
        model: FrozenTransformer,
        device: torch.device,
        source: Tensor,
        limits: Sequence[int],
        options: SearchSettings,
        _: None,
    ) -> None:
        B, S = source.shape
        source = F.pad(source, (0, COLUMNS - S % COLUMNS), value=PAD)  # so there is a mask
        self.state = model.start(source, functools.partial(on_device, device=device))
        self.limits = limits
        self.columns = source.size(1)
        self.positions = -(-(max(limits) + 1) // POSITIONS) * POSITIONS
        self.begun = 0  # sentences that have had a place
        self.missing = B  # sentences without results
        zeros = torch.zeros(B, self.positions, options.beam, dtype=torch.long, device=device)
        self.history = History(zeros, zeros.clone(), zeros.float())
        self.outputs = Outputs.none(B, 2 * options.beam, device)
        self.encoded = event(device)

    def collect(self, search: FixedSearch, sentences: Sequence[tuple[int, int]]) -> None:
        """Take over the results of these sentences, given as a place of `search` and a row."""
        places, rows = on_device(torch.tensor(sentences).t(), search.now.device)
        for all_rows, results in zip(self.outputs.all(), search.results(places), strict=True):
            all_rows[rows] = results
        for all_rows, steps in zip(self.history.all(), search.history.all(), strict=True):
            all_rows[rows] = steps[:, : self.positions][places]
        self.missing -= len(sentences)
        if not self.missing:
            self.copies = OnHost(*self.outputs.all(), *self.history.all())

    def results(self, nbest: int) -> list[list[Hypothesis]]:
        """The outputs of each sentence, after all have been collected."""
        copies = self.copies.wait()
        outputs, history = Outputs(*copies[:4]), History(*copies[4:])
        # What is no output has the length of an earlier sentence's.
        lengths = outputs.lengths.masked_fill(outputs.scores.isneginf(), 0)
        return hypotheses(outputs, history, int(lengths.max()), nbest)


class FixedSearch(Search):
    """A search whose tensors keep their shapes and addresses.

    A sentence that is done stays, with scores of -inf, until its place gets another one.

    Args:
        like: see `FixedState.of`.
    """

    model: FrozenTransformer
    state: FixedState

    def __init__(self, model: FrozenTransformer, shape: Shape, like: TransformerState) -> None:
        state = FixedState.of(model, shape, like)
        super().__init__(
            model,
            state,
            [0] * shape.places,
            shape.options,
            device=state.now.device,
            width=shape.options.beam,
            steps=shape.positions,
        )
        self.shape = shape
        self.now = state.now
        self.graphs: dict[int, Any] = {}
        # What sentences have that was cut off, when they are done: both [A, K].
        self.cut_scores = torch.full_like(self.scores, -torch.inf)
        self.cut_lengths = torch.zeros_like(self.last)

    def begin(self, batch: EncodedBatch, places: Sequence[int]) -> None:
        """Search the next sentences of `batch` at these places."""
        rows = slice(batch.begun, batch.begun + len(places))
        batch.begun += len(places)
        numbers = torch.tensor([places, batch.limits[rows]])
        index, limits = on_device(numbers, self.now.device)
        self.sentences.limits[index] = limits
        for scores in (self.scores, self.cut_scores, self.sentences.finished.scores):
            scores.index_fill_(0, index, -torch.inf)
        self.scores[:, 0].index_fill_(0, index, 0.0)
        self.last.index_fill_(0, index, BOS)
        self.state.begin(index, batch.state, rows)

    def run(self, positions: int) -> None:
        """Do the next steps, after which a hypothesis has at most so many `positions`.

        The first ones of their kind are done as they are, which prepares the libraries. The next
        ones are a CUDA graph.
        """
        columns = -(-positions // COLUMNS) * COLUMNS
        columns = min(columns, self.shape.positions) * self.options.beam
        self.state.columns = columns
        if columns not in self.graphs:
            self.graphs[columns] = None
            self._steps_in_place()
            return
        if self.graphs[columns] is None:
            self.graphs[columns] = captured(self._steps_in_place)
        self.graphs[columns].replay()

    def best_tokens(self, number: int) -> tuple[Tensor, Tensor]:
        """See `Search`."""
        options = self.options
        logits = self.model.logits(self.last.flatten(), self.state)
        is_short = self.now <= options.min_length
        kernels = kernels_of_step(self.now.device, self.state.mask.dtype)
        if kernels is None:
            log_probabilities = logits.log_softmax(1, dtype=torch.float32)
            restrict(log_probabilities, options.min_length + 1, options, None)
            of_rows = is_short.repeat_interleave(options.beam)
            log_probabilities[:, EOS].masked_fill_(of_rows, -torch.inf)
            return topk(log_probabilities, number)
        symbols = sum(1 << symbol for symbol in forbidden(options.min_length + 1, options))
        of_sentences = is_short.long() * (1 << EOS) + symbols
        allowed = logits.size(1) - options.never_generated
        return kernels.best_tokens(logits, number, of_sentences, allowed)

    def finish(self, candidates: Candidates, ends: Tensor) -> Candidates:
        """See `Search`."""
        return self.take_ends(candidates, ends)

    def leave(self, live: Candidates, done: Tensor) -> Candidates:
        """See `Search`. NaN stays, for the host to find."""
        cut = self.cut_off()
        now_done = done[:, None] & ~cut.scores.isneginf()
        self.cut_scores = torch.where(now_done, cut.scores, self.cut_scores)
        self.cut_lengths = torch.where(now_done, cut.lengths, self.cut_lengths)
        gone = (done & ~live.scores[:, 0].isnan())[:, None]
        return replace(live, scores=live.scores.masked_fill(gone, -torch.inf))

    def results(self, places: Tensor) -> list[Tensor]:
        """The tensors of the `Outputs` at these places: the finished ones, and those cut off."""
        cut = replace(self.cut_off(), scores=self.cut_scores, lengths=self.cut_lengths)
        outputs = self.sentences.finished.followed_by(cut)
        return [tensor[places] for tensor in outputs.all()]

    def load(self, other: FixedSearch, places: Sequence[int]) -> None:
        """Take over the sentences at `places` of a search of another shape."""
        count = len(places)
        index = on_device(torch.tensor(places, dtype=torch.long), self.now.device)
        self.state.columns = other.state.columns
        self.state.hide(slice(count))
        for tensor, source in zip(self._tensors(), other._tensors(), strict=True):
            common = [slice(size) for size in map(min, tensor.shape[1:], source.shape[1:])]
            tensor[(slice(count), *common)] = source[(slice(None), *common)][index]
        # A sentence that is done, which the host does not know yet, may be past its end.
        self.now.clamp_(max=self.shape.positions - 1)

    def _tensors(self) -> list[Tensor]:
        """All tensors of each sentence: [A, ...]."""
        return [
            self.sentences.limits,
            *self._changing(),
            *self.history.all(),
            *self.state.tensors(),
        ]

    def _changing(self) -> list[Tensor]:
        """The tensors in place of which a step makes new ones."""
        return [
            self.scores,
            self.last,
            self.cut_scores,
            self.cut_lengths,
            *self.sentences.finished.all(),
        ]

    def _steps_in_place(self) -> None:
        before = self._changing()
        for _ in range(ASKED):
            self.length = 0  # sentences have their own
            self.step()
            # The history of a sentence that is done has no need of its last position.
            self.now.clamp_(max=self.shape.positions - 1)
        for tensor, new in zip(before, self._changing(), strict=True):
            tensor.copy_(new)
        self.scores, self.last, self.cut_scores, self.cut_lengths, *finished = before
        self.sentences.finished = Outputs(*finished)


@dataclass(kw_only=True)
class FixedState(TransformerState):
    """The state of a `FixedSearch`. Tensors are changed in place."""

    source_mask: Tensor
    now: Tensor  # [A], target positions of each sentence, with that of the step
    encodings: Tensor  # [positions, d_model]
    kernels: Any  # that compute attention, `step_kernels` or None
    columns: int = 0  # that a step sees, as many for each position as a sentence has hypotheses

    @classmethod
    def of(cls, model: FrozenTransformer, shape: Shape, like: TransformerState) -> FixedState:
        """Return a state without sentences, whose caches are of the same types as `like`."""
        A, W = shape.places, shape.options.beam
        _, H, _, both = like.source[0].shape
        columns = shape.positions * W
        new = like.source[0].new_zeros
        key = (like.mask.device, like.mask.dtype)
        sizes = (W, model.d_k, both - model.d_k)
        return cls(
            source=[new(A, H, shape.columns, both) for _ in like.source],
            source_mask=new(A, 1, 1, shape.columns),
            # What is not seen must be finite, because a weight of 0 times NaN is NaN.
            target=[new(A, H, columns, both) for _ in like.source],
            mask=new(A, W, columns).fill_(-torch.inf),
            newest=new(W, W).fill_(-torch.inf).fill_diagonal_(0.0),
            now=torch.zeros(A, dtype=torch.long, device=like.mask.device),
            encodings=model.encodings(shape.positions),
            kernels=kernels_of_step(*key) and kernels_of_step(*key, *sizes),
        )

    def begin(self, places: Tensor, encoded: TransformerState, rows: slice) -> None:
        """Have these `rows` of what is `encoded` at `places` [n], without target positions."""
        assert encoded.source_mask is not None
        self.now[places] = 0
        self.hide(places)
        columns = encoded.source_mask.size(3)
        self.source_mask[..., :columns].index_copy_(0, places, encoded.source_mask[rows])
        for cache, source in zip(self.source, encoded.source, strict=True):
            cache[:, :, :columns].index_copy_(0, places, source[rows])

    def hide(self, places: Any) -> None:
        """Let nothing be seen at these places."""
        self.mask[places] = -torch.inf
        self.source_mask[places] = -torch.inf

    def tensors(self) -> list[Tensor]:
        """The tensors of each sentence: [A, ...]."""
        return [
            self.now,
            *self.source,
            self.source_mask,
            self.mask,
            *(cache[:, :, : self.columns] for cache in self.target),
        ]

    def select(self, rows: Tensor) -> FixedState:
        """See `DecoderState`."""
        self.mask.copy_(self.mask.flatten(0, 1)[rows.flatten()].view_as(self.mask))
        return self

    def extend(self, positions: Any) -> tuple[Tensor, Step]:
        """See `TransformerState`."""
        A, W, _ = self.mask.shape
        position = self.now - 1
        columns = position[:, None] * W + torch.arange(W, device=position.device)  # [A, W]
        newest = self.newest.expand(A, W, W)
        self.mask.scatter_(2, columns[:, None].expand_as(newest), newest)
        of_rows = position.repeat_interleave(W)
        seen = self.mask[:, :, : self.columns]
        return self.encodings[of_rows], Step(seen, position=of_rows[:, None], newest=columns)

    def to_source(self) -> Layout:
        """See `TransformerState`."""
        if self.kernels is None:
            return super().to_source()
        return self.kernels.ToSource(self.source_mask)

    def to_past(self, step: Step, cache: Tensor) -> Layout:
        """See `TransformerState`."""
        if self.kernels is None:
            return FixedPast(step, cache)
        return self.kernels.ToPast(step, cache)


class FixedPast(CachedPast):
    """The layout of self-attention in a step, if sentences differ in their lengths."""

    def write(self, newest: Tensor) -> None:
        """See `CachedPast`."""
        assert isinstance(self.step.newest, Tensor)
        columns = self.step.newest[:, None, :, None]  # [A, 1, W, 1]
        self.cache.scatter_(2, columns.expand_as(newest), newest)


class OnHost:
    """Copies of tensors in the host's memory, which are made while the GPU goes on."""

    def __init__(self, *tensors: Tensor) -> None:
        self.copies = [tensor.to("cpu", non_blocking=True, copy=True) for tensor in tensors]
        self.done = event(tensors[0].device)

    def wait(self) -> list[Tensor]:
        """Return the copies."""
        if self.done is not None:
            self.done.synchronize()
        return self.copies


def event(device: torch.device) -> Any:
    """Return an event after all that the current stream has to do, or None without streams."""
    return torch.cuda.current_stream().record_event() if device.type == "cuda" else None


@functools.cache
def side_stream(device: torch.device) -> Any:
    """Return a GPU's only stream beside a search: each keeps memory of its own."""
    if device.type != "cuda":
        return None
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


def on_device(tensor: Tensor, device: torch.device) -> Tensor:
    """Return a copy of a tensor of the host, for which a GPU does not wait."""
    return (tensor.pin_memory() if device.type == "cuda" else tensor).to(device, non_blocking=True)


def captured(work: Callable[[], None]) -> Any:
    """Return a CUDA graph of what `work` launches, in the memory of the device's other graphs.

    No graph needs what another left there. The pool of a graph goes with the last graph that uses
    it.
    """
    graphs = _graphs[torch.cuda.current_device()]
    graph = torch.cuda.CUDAGraph()
    other = next(iter(graphs), None)  # keeps the pool during the capture
    pool = None if other is None else other.pool()
    with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
        work()
    graphs.add(graph)
    return graph
