"""A search whose tensors keep their shapes and addresses, with CUDA graphs of its steps.

The tensors of a search stay from call to call, a set for each shape: places, source columns and
target positions, in buckets. Letters are as in `beam_search.py`, where A counts the places. Some
have no sentence.
"""

from __future__ import annotations

import functools
import weakref
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from nmt_cli.decoding.beam_search import Candidates, Outputs, Search, forbidden, restrict
from nmt_cli.fast.cuda.checks import kernels_of_step
from nmt_cli.fast.cuda.copies import on_device
from nmt_cli.fast.cuda.encoded_batch import EncodedBatch
from nmt_cli.fast.cuda.fixed_state import COLUMNS, FixedState, Shape
from nmt_cli.fast.inference import FrozenTransformer
from nmt_cli.interfaces import BOS, EOS

ASKED = 2  # steps from one question to the next

_graphs = defaultdict[int, weakref.WeakSet[Any]](weakref.WeakSet)  # the CUDA graphs of each device


class FixedSearch(Search):
    """A search whose tensors keep their shapes and addresses.

    A sentence that is done stays, with scores of -inf, until its place gets another one.

    Args:
        like: a batch whose tensors are of the same types.
    """

    model: FrozenTransformer
    state: FixedState

    def __init__(self, model: FrozenTransformer, shape: Shape, like: EncodedBatch) -> None:
        state = FixedState.of(model, shape, like.state)
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
        self.inputs: Any = None  # see `Steps`
        if like.inputs is not None:
            sizes = (shape.places, shape.positions, *like.inputs.shape[2:])
            self.inputs = like.inputs.new_zeros(sizes)
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
        if batch.inputs is not None:
            self.inputs[:, : batch.positions].index_copy_(0, index, batch.inputs[rows])
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
        kernels = kernels_of_step(self.now.device, self.state.mask.dtype)
        if kernels is None:
            return super().best_tokens(number)
        options = self.options
        logits = self.model.logits(self.last.flatten(), self.state)
        symbols = sum(1 << symbol for symbol in forbidden(options.min_length + 1, options))
        of_sentences = self._is_short().long() * (1 << EOS) + symbols
        allowed = logits.size(1) - options.never_generated
        return kernels.best_tokens(logits, number, of_sentences, allowed)

    def log_probabilities(self) -> Tensor:
        """See `Search`."""
        options = self.options
        logits = self.model.logits(self.last.flatten(), self.state)
        log_probabilities = logits.log_softmax(1, dtype=torch.float32)
        restrict(log_probabilities, options.min_length + 1, options, None)
        of_rows = self._is_short().repeat_interleave(options.beam)
        log_probabilities[:, EOS].masked_fill_(of_rows, -torch.inf)
        return log_probabilities

    def _is_short(self) -> Tensor:
        """Which sentences [A] may not end with this token."""
        return self.now <= self.options.min_length

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
        """The outputs at these places, first the finished ones, and their history."""
        cut = replace(self.cut_off(), scores=self.cut_scores, lengths=self.cut_lengths)
        outputs = self.sentences.finished.followed_by(cut)
        return [tensor[places] for tensor in (*outputs.all(), *self.history.all())]

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
        inputs = [] if self.inputs is None else [self.inputs]
        return [
            self.sentences.limits,
            *self._changing(),
            *self.history.all(),
            *self.state.tensors(),
            *inputs,
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


@functools.cache
def fixed(search: type[Search]) -> Any:
    """Return a subclass of `search` that is a `FixedSearch`."""
    return type(f"Fixed{search.__name__}", (FixedSearch, search), {})


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
