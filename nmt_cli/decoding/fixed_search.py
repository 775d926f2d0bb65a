"""Beam search on a GPU: steps of constant shapes, as CUDA graphs, which the host launches without waiting.

The tensors of a search stay from batch to batch, a set for each bucket: of sentences, source columns and target
positions. The host asks every few steps which sentences are done, and reads the answer as many steps later. When the
others fit in a smaller bucket, they move. Letters as in `beam_search.py`; some of a bucket's A rows hold no sentence.
"""

from __future__ import annotations

import threading
import weakref
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from nmt_cli.decoding.beam_search import Candidates, History, Outputs, Search, check_probabilities, hypotheses
from nmt_cli.decoding.options import SearchSettings
from nmt_cli.interfaces import EOS, FixedShapes, Hypothesis

ASKED = 8  # steps from one question to the next
COLUMNS = 32  # source columns, and positions that a step sees, are multiples of this
KEPT = 16  # sets of tensors of a model
MOST = 8192  # hypotheses of all steps of a sentence, whose caches are allocated at its start

_lock = threading.Lock()  # threads share a translator
_graphs = defaultdict[int, weakref.WeakSet[Any]](weakref.WeakSet)  # the CUDA graphs of each device


def takes(model: object, limits: Sequence[int], options: SearchSettings) -> bool:
    """Return whether `fixed_search` can be used."""
    return isinstance(model, FixedShapes) and model.kept is not None and max(limits) * options.beam < MOST


@torch.inference_mode()
def fixed_search(model: Any, source: Tensor, limits: Sequence[int], options: SearchSettings) -> list[list[Hypothesis]]:
    """As `beam_search`, without a constraint, by a model of `FixedShapes`."""
    device = torch.cuda.device(source.get_device())  # graphs are of the current one; -1, the CPU, changes nothing
    with _lock, device:
        try:
            return _search(model, source, limits, options)
        except RuntimeError:  # such as no memory, whose type depends on the library that asked for it
            model.kept.clear()
            raise


class FixedSearch(Search):
    """A search whose tensors keep their shapes and places. A sentence that is done stays, with scores of -inf."""

    state: Any

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.graphs: dict[tuple[int, bool], Any] = {}
        # What sentences have that was cut off, when they are done: both [A, K].
        self.cut_scores = torch.full_like(self.scores, -torch.inf)
        self.cut_lengths = torch.zeros_like(self.last)

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
        """The outputs of the first `sentences`: those that are finished, and those that were cut off."""
        cut = replace(self.cut_off(), scores=self.cut_scores, lengths=self.cut_lengths)
        return self.sentences.finished.followed_by(cut).map(lambda part: part[:sentences])

    def collect(self, outputs: Outputs, history: History, places: Tensor) -> None:
        """Write the results of the first sentences to these `places` [any] of `outputs` and `history`."""
        found = [*self.results(len(places)).all(), *(part[: len(places)] for part in self.history.all())]
        for whole, part in zip([*outputs.all(), *history.all()], found, strict=True):
            whole[places] = part

    def load(self, other: FixedSearch, active: Sequence[int]) -> None:
        """Take over the `active` sentences of another search."""
        self.state.columns = other.state.columns
        rows = torch.tensor([*active, *[0] * (len(self.last) - len(active))], device=self.now.device)
        tensors = [self.sentences.limits, *self._changing(), *self.history.all(), *self.state.tensors()]
        others = [other.sentences.limits, *other._changing(), *other.history.all(), *other.state.tensors()]
        for mine, its in zip(tensors, others, strict=True):
            mine.copy_(its[rows])
        self.scores[len(active) :] = -torch.inf
        self.now.copy_(other.now)
        self.state.now.copy_(other.now)

    def run(self, length: int) -> None:
        """Do a step: the first of its kind as it is, which prepares the libraries, and the next from a CUDA graph."""
        self.length, self.state.columns = length - 1, -(-length // COLUMNS) * COLUMNS * self.options.beam
        key = self.state.columns, length > self.options.min_length
        if key not in self.graphs:
            self.graphs[key] = None
            self._step_in_place()
            return
        self.graphs[key] = self.graphs[key] or captured(self._step_in_place)
        self.graphs[key].replay()
        self.length = length

    def _changing(self) -> list[Tensor]:
        """The tensors in place of which a step makes new ones."""
        return [self.scores, self.last, self.cut_scores, self.cut_lengths, *self.sentences.finished.all()]

    def _step_in_place(self) -> None:
        before = self._changing()
        self.step()
        for mine, new in zip(before, self._changing(), strict=True):
            mine.copy_(new)
        self.scores, self.last, self.cut_scores, self.cut_lengths, *finished = before
        self.sentences.finished = Outputs(*finished)


def _search(model: Any, source: Tensor, limits: Sequence[int], options: SearchSettings) -> list[list[Hypothesis]]:
    (B, S), K, device, last = source.shape, options.beam, source.device, max(limits) + 1
    positions = -(-last // 64) * 64
    source = F.pad(source, (0, COLUMNS - S % COLUMNS, 0, _bucket(B) - B))
    source[B:, 0] = EOS
    limits = [*limits, *[0] * (len(source) - B)]

    def made(rows: int) -> FixedSearch:
        state, proxy = model.start_fixed(source[:rows], K, positions), weakref.proxy(model)  # it keeps the search
        return FixedSearch(proxy, state, limits[:rows], options, device=device, width=K, steps=positions)

    def moved(other: FixedSearch, active: Sequence[int]) -> FixedSearch:
        key = options, _bucket(len(active)), source.size(1), positions
        if key not in model.kept and len(model.kept) == KEPT:
            del model.kept[next(iter(model.kept))]  # the oldest
        search: FixedSearch = model.kept.get(key) or model.kept.setdefault(key, made(key[1]))
        search.load(other, active)
        return search

    sentences, answer = torch.arange(B), None
    search = moved(made(len(source)), range(B))
    outputs, history = search.results(B), search.history.map(lambda part: part[:B].clone())

    for length in range(1, last + 1):
        search.run(length)
        if length % ASKED:
            continue
        if answer is not None:
            active = [place for place, score in enumerate(answer().tolist()) if score != -torch.inf]
            if not active:
                break
            if _bucket(len(active)) < len(search.last):
                search.collect(outputs, history, sentences.to(device))
                search, sentences = moved(search, active), sentences[active]
        answer = _copied(search.scores[:, 0])
    search.collect(outputs, history, sentences.to(device))
    check_probabilities(search.scores[:, 0])
    return hypotheses(outputs, history, length, options.nbest)


def _bucket(sentences: int) -> int:
    return max(8, 1 << (sentences - 1).bit_length())


def _copied(values: Tensor) -> Callable[[], Tensor]:
    """Begin to copy `values` to the host; return the function that waits for them."""
    copy = values.to("cpu", non_blocking=True, copy=True)
    wait = torch.cuda.current_stream().record_event().synchronize if values.is_cuda else lambda: None
    return lambda: (wait(), copy)[1]


def captured(work: Callable[[], None]) -> Any:
    """Return a CUDA graph of what `work` launches. It shares the memory of the other graphs of its device.

    No graph needs what another left there. The pool of a graph goes with the last graph that uses it.
    """
    graphs = _graphs[torch.cuda.current_device()]
    graph, other = torch.cuda.CUDAGraph(), next(iter(graphs), None)  # `other` keeps the pool during the capture
    with torch.cuda.graph(graph, pool=other.pool() if other else None, capture_error_mode="thread_local"):
        work()
    graphs.add(graph)
    return graph
