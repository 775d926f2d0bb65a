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
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from nmt_cli.decoding.beam_search import Candidates, Search, check_probabilities, hypotheses
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

    fixed = True
    state: Any

    def leave(self, live: Candidates, done: Tensor) -> Candidates:
        """See `Search`. NaN stays until the end, for the host to find."""
        gone = (done & ~live.scores[:, 0].isnan())[:, None]
        return live._replace(scores=live.scores.masked_fill(gone, -torch.inf))

    def load(self, other: FixedSearch, active: Sequence[int]) -> None:
        """Take over the `active` sentences of another search."""
        self.state.columns = other.state.columns
        rows = torch.tensor([*active, *[0] * (len(self.limits) - len(active))], device=self.now.device)
        for mine, its in zip(self._tensors(), other._tensors(), strict=True):
            mine.copy_(its[rows])
        self.scores[len(active) :] = -torch.inf
        self.now.copy_(other.now)
        self.state.now.copy_(other.now)

    def run(self, length: int) -> None:
        """Do a step: the first of its kind as it is, which prepares the libraries, and the next from a CUDA graph."""
        self.length, self.state.columns = length, -(-length // COLUMNS) * COLUMNS * self.options.beam
        key = self.state.columns, length > self.options.min_length
        graphs = vars(self).setdefault("graphs", {})
        if key not in graphs:
            graphs[key] = None
            self._step_in_place()
            return
        graphs[key] = graphs[key] or captured(self._step_in_place)
        graphs[key].replay()

    def _tensors(self) -> list[Tensor]:
        own = [self.limits, self.penalties, self.scores, self.last, self.finished, self.history]
        return [*own, *self.state.tensors()]

    def _step_in_place(self) -> None:
        before = self.scores, self.last, self.finished
        self.step()
        for mine, new in zip(before, (self.scores, self.last, self.finished), strict=True):
            mine.copy_(new)
        self.scores, self.last, self.finished = before


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
    outputs, history = search.outputs[:B].clone(), search.history[:B].clone()

    def collect() -> None:
        places = sentences.to(device)
        outputs[places], history[places] = search.finished[: len(places)], search.history[: len(places)]

    for length in range(1, last + 1):
        search.run(length)
        if length % ASKED:
            continue
        if answer is not None:
            active = [place for place, score in enumerate(answer().tolist()) if score != -torch.inf]
            if not active:
                break
            if _bucket(len(active)) < len(search.limits):
                collect()
                search, sentences = moved(search, active), sentences[active]
        answer = _copied(search.scores[:, 0])
    collect()
    check_probabilities(search.scores[:, 0])
    return hypotheses(outputs, history[:, :length])


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
