"""Beam search on a GPU: steps of constant shapes as CUDA graphs, launched without waiting.

The tensors of a search stay from batch to batch, a set for each shape: sentences, source columns
and target positions, in buckets. The host asks every few steps which sentences are done, and reads
the answer as many steps later. When the others fit in a smaller bucket, they move. Letters are as
in `beam_search.py`. Some of a bucket's A rows hold no sentence.
"""

from __future__ import annotations

import threading
import weakref
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

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
)
from nmt_cli.decoding.options import SearchSettings
from nmt_cli.fast.cuda.checks import kernels_of_step
from nmt_cli.fast.inference import FrozenTransformer, Step, TransformerState
from nmt_cli.interfaces import EOS, PAD, Constraint, Hypothesis
from nmt_cli.layers.attention import Layout

ASKED = 4  # steps from one question to the next
COLUMNS = 32  # source columns, and positions that a step sees, are multiples of this
KEPT = 16  # sets of tensors of a model
MOST = 8192  # hypotheses of all steps of a sentence, whose caches are allocated at its start

_lock = threading.Lock()  # threads share a translator, and all graphs of a device share memory
_graphs = defaultdict[int, weakref.WeakSet[Any]](weakref.WeakSet)  # the CUDA graphs of each device


@dataclass(frozen=True)
class Shape:
    """What must be equal for two searches to use the same tensors."""

    options: SearchSettings
    sentences: int
    columns: int  # of the source
    positions: int  # of the target, at most


class GraphSearch:
    """Beam search with a model that `takes` this search.

    Args:
        otherwise: the search for what has a constraint, or more steps than caches are allocated
            for.
    """

    def __init__(self, model: Any, otherwise: Callable[..., list[list[Hypothesis]]]) -> None:
        self.model, self.otherwise = model, otherwise
        self.searches: dict[Shape, FixedSearch] = {}

    @torch.inference_mode()
    def __call__(
        self,
        source: Tensor,
        limits: Sequence[int],
        options: SearchSettings | None = None,
        constraint: Constraint | None = None,
    ) -> list[list[Hypothesis]]:
        """See `beam_search`."""
        options = options or SearchSettings()
        if constraint is not None or max(limits) * options.beam >= MOST:
            return self.otherwise(source, limits, options, constraint)
        # Graphs are captured for the current device. -1, the CPU, changes nothing.
        device = torch.cuda.device(source.get_device())
        with _lock, device:
            try:
                return self._search(source, limits, options)
            # Such as no memory, whose type depends on the library that asked for it.
            except RuntimeError:
                self.searches.clear()
                raise

    def _search(
        self, source: Tensor, limits: Sequence[int], options: SearchSettings
    ) -> list[list[Hypothesis]]:
        B, S = source.shape
        last = max(limits) + 1
        shape = Shape(
            options,
            sentences=_bucket(B),
            columns=S + COLUMNS - S % COLUMNS,  # at least one is padding
            positions=-(-last // 64) * 64,
        )
        search = self._moved(FixedSearch(self.model, shape, source, limits), range(B))
        sentences = torch.arange(B)  # of the batch, in the first rows of the search
        outputs = search.results(B)
        history = search.history.map(lambda part: part[:B].clone())
        answer = None
        for length in range(1, last + 1):
            search.run(length)
            if length % ASKED:
                continue
            if answer is not None:
                active = answer.wait()
                if not active:
                    break
                if _bucket(len(active)) < search.shape.sentences:
                    search.collect(outputs, history, sentences.to(source.device))
                    search = self._moved(search, active)
                    sentences = sentences[active]
            answer = Answer(search.scores[:, 0])
        search.collect(outputs, history, sentences.to(source.device))
        check_probabilities(search.scores[:, 0])
        return hypotheses(outputs, history, length, options.nbest)

    def _moved(self, other: FixedSearch, active: Sequence[int]) -> FixedSearch:
        """Return the search that fits the `active` sentences of another one, and gets them."""
        shape = replace(other.shape, sentences=_bucket(len(active)))
        if shape not in self.searches:
            if len(self.searches) == KEPT:
                del self.searches[next(iter(self.searches))]  # the oldest
            nothing = torch.empty(0, 1, dtype=torch.long, device=other.now.device)
            self.searches[shape] = FixedSearch(self.model, shape, nothing, [])
        self.searches[shape].load(other, active)
        return self.searches[shape]


class FixedSearch(Search):
    """A search whose tensors keep their shapes and places.

    A sentence that is done stays, with scores of -inf.

    Args:
        source: [at most A, S].
        limits: of these sentences.
    """

    model: FrozenTransformer
    state: FixedState

    def __init__(
        self, model: FrozenTransformer, shape: Shape, source: Tensor, limits: Sequence[int]
    ) -> None:
        B, S = source.shape
        padded = F.pad(source, (0, shape.columns - S, 0, shape.sentences - B), value=PAD)
        padded[B:, 0] = EOS
        state = FixedState.of(model, padded, shape.options.beam, shape.positions)
        super().__init__(
            model,
            state,
            [*limits, *[0] * (shape.sentences - B)],
            shape.options,
            device=source.device,
            width=shape.options.beam,
            steps=shape.positions,
        )
        self.shape = shape
        self.graphs: dict[tuple[int, bool], Any] = {}
        # What sentences have that was cut off, when they are done: both [A, K].
        self.cut_scores = torch.full_like(self.scores, -torch.inf)
        self.cut_lengths = torch.zeros_like(self.last)

    def best_tokens(self, number: int) -> tuple[Tensor, Tensor]:
        """See `Search`."""
        kernels = kernels_of_step(self.now.device, self.state.mask.dtype)
        if kernels is None:
            return super().best_tokens(number)
        logits = self.model.logits(self.last.flatten(), self.state)
        symbols = sum(1 << symbol for symbol in forbidden(self.length, self.options))
        allowed = logits.size(1) - self.options.never_generated
        return kernels.best_tokens(logits, number, symbols, allowed)

    def finish(self, candidates: Candidates, ends: Tensor) -> Candidates:
        """See `Search`."""
        return self.take_ends(candidates, ends)

    def leave(self, live: Candidates, done: Tensor) -> Candidates:
        """See `Search`. NaN stays until the end, for the host to find."""
        cut = self.cut_off()
        now_done = done[:, None] & ~cut.scores.isneginf()
        self.cut_scores = torch.where(now_done, cut.scores, self.cut_scores)
        self.cut_lengths = torch.where(now_done, cut.lengths, self.cut_lengths)
        gone = (done & ~live.scores[:, 0].isnan())[:, None]
        return replace(live, scores=live.scores.masked_fill(gone, -torch.inf))

    def results(self, sentences: int) -> Outputs:
        """The outputs of the first `sentences`: the finished ones, and the ones cut off."""
        cut = replace(self.cut_off(), scores=self.cut_scores, lengths=self.cut_lengths)
        return self.sentences.finished.followed_by(cut).map(lambda part: part[:sentences])

    def collect(self, outputs: Outputs, history: History, places: Tensor) -> None:
        """Write the results of the first sentences to `places` [any] of `outputs` and `history`."""
        count = len(places)
        for whole, part in zip(outputs.all(), self.results(count).all(), strict=True):
            whole[places] = part
        for whole, part in zip(history.all(), self.history.all(), strict=True):
            whole[places] = part[:count]

    def load(self, other: FixedSearch, active: Sequence[int]) -> None:
        """Take over the `active` sentences of another search."""
        self.state.columns = other.state.columns
        empty = len(self.last) - len(active)
        rows = torch.tensor([*active, *[0] * empty], device=self.now.device)
        for tensor, source in zip(self._tensors(), other._tensors(), strict=True):
            tensor.copy_(source[rows])
        self.scores[len(active) :] = -torch.inf
        self.now.copy_(other.now)
        self.state.now.copy_(other.state.now)

    def run(self, length: int) -> None:
        """Do a step.

        The first step of its kind is done as it is, which prepares the libraries. The next ones are
        a CUDA graph.
        """
        self.length = length - 1
        self.state.columns = -(-length // COLUMNS) * COLUMNS * self.options.beam
        key = self.state.columns, length > self.options.min_length  # a step differs by both
        if key not in self.graphs:
            self.graphs[key] = None
            self._step_in_place()
            return
        if self.graphs[key] is None:
            self.graphs[key] = captured(self._step_in_place)
        self.graphs[key].replay()
        self.length = length

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

    def _step_in_place(self) -> None:
        before = self._changing()
        self.step()
        for tensor, new in zip(before, self._changing(), strict=True):
            tensor.copy_(new)
        self.scores, self.last, self.cut_scores, self.cut_lengths, *finished = before
        self.sentences.finished = Outputs(*finished)


@dataclass(kw_only=True)
class FixedState(TransformerState):
    """The state of a `FixedSearch`. Tensors are changed in place."""

    now: Tensor  # [1], target positions so far
    encodings: Tensor  # [positions, d_model]
    kernels: Any  # that compute attention, `step_kernels` or None
    columns: int = 0  # that a step sees, as many for each position as a sentence has hypotheses

    @classmethod
    def of(cls, model: FrozenTransformer, source: Tensor, width: int, positions: int) -> FixedState:
        """Encode `source` [A, S], which has padding."""
        state = model.start(source)
        cache = state.source[0]
        columns = positions * width
        A, H, _, both = cache.shape
        key = (source.device, cache.dtype)
        sizes = (width, model.d_k, both - model.d_k)
        return cls(
            source=state.source,
            source_mask=state.source_mask,
            # What is not seen must be finite, because a weight of 0 times NaN is NaN.
            target=[cache.new_zeros(A, H, columns, both) for _ in state.source],
            mask=cache.new_full((A, width, columns), -torch.inf),
            newest=cache.new_full((width, width), -torch.inf).fill_diagonal_(0.0),
            now=torch.zeros(1, dtype=torch.long, device=source.device),
            encodings=model.encodings(positions),
            kernels=kernels_of_step(*key) and kernels_of_step(*key, *sizes),
        )

    def tensors(self) -> list[Tensor]:
        """The tensors of each sentence: [A, ...]."""
        assert self.source_mask is not None
        return [
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
        W = len(self.newest)
        position = self.now.clone()
        columns = self.now * W + torch.arange(W, device=self.now.device)
        self.mask[:, :, columns] = self.newest
        self.now += 1
        seen = self.mask[:, :, : self.columns]
        step = Step(seen, position=position, newest=columns)
        return self.encodings[position], step

    def to_source(self) -> Layout:
        """See `TransformerState`."""
        if self.kernels is None:
            return super().to_source()
        return self.kernels.ToSource(self.source_mask)

    def to_past(self, step: Step, cache: Tensor) -> Layout:
        """See `TransformerState`."""
        if self.kernels is None:
            return super().to_past(step, cache)
        return self.kernels.ToPast(step, cache)


class Answer:
    """Which sentences are active, copied to the host while the GPU goes on.

    Args:
        best: the score of the best live hypothesis of each sentence, [A].
    """

    def __init__(self, best: Tensor) -> None:
        self.best = best.to("cpu", non_blocking=True, copy=True)
        self.copied = torch.cuda.current_stream().record_event() if best.is_cuda else None

    def wait(self) -> list[int]:
        """Return the numbers of the sentences that are active."""
        if self.copied is not None:
            self.copied.synchronize()
        return [number for number, score in enumerate(self.best.tolist()) if score != -torch.inf]


def _bucket(sentences: int) -> int:
    return max(8, 1 << (sentences - 1).bit_length())


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
