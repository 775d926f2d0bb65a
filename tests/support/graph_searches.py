"""Searches of a GPU on a CPU. Recorded operations stand in for CUDA graphs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from nmt_cli import registry
from nmt_cli.decoding.beam_search import beam_search
from nmt_cli.decoding.engine import Request
from nmt_cli.fast.cuda import fixed_search
from nmt_cli.fast.cuda.device import Fast
from nmt_cli.fast.cuda.graph_search import GraphSearch
from nmt_cli.interfaces import EOS, PAD, Hypothesis
from nmt_cli.layers.settings import FullAttentionConfig
from nmt_cli.models.settings import TransformerConfig
from nmt_cli.models.transformer import Transformer

V = 300
WAITS = ("_local_scalar_dense", "nonzero", "is_nonzero", "masked_select", "equal")


class Graph(TorchDispatchMode):
    """Operations with the numbers and memory that they had: a replay knows nothing new."""

    def __init__(self, work: Callable[[], None]) -> None:
        super().__init__()
        self.calls: list[tuple[Any, ...]] = []
        self.replays = 0
        with self:
            work()

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        assert str(function).split(".")[1] not in WAITS
        output = function(*args, **(kwargs or {}))
        self.calls.append((function, args, kwargs or {}, output))
        return output

    def replay(self) -> None:
        self.replays += 1
        # The first was the recording.
        for function, args, kwargs, output in self.calls if self.replays > 1 else ():
            for mine, new in zip(
                tree_leaves(output), tree_leaves(function(*args, **kwargs)), strict=True
            ):
                if isinstance(mine, Tensor) and mine.data_ptr() != new.data_ptr():
                    mine.copy_(new)


def model(attention: Any = None, dtype: str = "float32", **fields: Any) -> Any:
    """A model of opinions, whose outputs end early or late."""
    registry.discover()
    torch.manual_seed(0)
    config = TransformerConfig(num_layers=2, d_model=32, d_ff=64, num_heads=4, **fields)
    words = {"source_vocabulary_size": V, "target_vocabulary_size": V, "shared_vocabulary": True}
    new_model = Transformer(config, attention=attention or FullAttentionConfig(), **words)
    with torch.no_grad():
        new_model.target_embedding.weight[EOS] *= 2
        new_model.decoder[-1].around_feed_forward.norm.weight.normal_()
    return Fast(torch.device("cpu")).decodable(new_model.eval(), dtype)


def search_of(decodable: Any) -> GraphSearch:
    search = Fast(torch.device("cpu")).search(decodable, beam_search)
    assert isinstance(search, GraphSearch)
    return search


def requested(batches: Iterable[Sequence[Any]], first: int = 1) -> Iterator[Sequence[Any]]:
    """Batches as for `beam_search`, with requests in place of limits, whose lines have numbers."""
    for source, limits, *others in batches:
        requests = [Request([], limit, number=number) for number, limit in enumerate(limits, first)]
        first += len(limits)
        yield source, requests, *others


def searched(search: GraphSearch, *batch: Any) -> list[list[Hypothesis]]:
    (outputs,) = search(requested([(*batch, None)]))
    return outputs


def sources(lengths: Sequence[int], seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randint(EOS + 1, V, (len(lengths), max(lengths)), generator=generator)
    ends = torch.tensor(lengths)[:, None] - 1
    places = torch.arange(rows.size(1))
    return rows.masked_fill(places == ends, EOS).masked_fill(places > ends, PAD)


def check(results: list[list[Hypothesis]], expected: list[list[Hypothesis]]) -> None:
    assert [[h.tokens for h in hypotheses] for hypotheses in results] == [
        [h.tokens for h in hypotheses] for hypotheses in expected
    ]
    for mine, its in zip(chain(*results), chain(*expected), strict=True):
        assert mine.score == pytest.approx(its.score, abs=1e-4)
        assert mine.token_scores == pytest.approx(its.token_scores, abs=1e-4)


def recorded(monkeypatch: pytest.MonkeyPatch) -> list[Graph]:
    """The graphs that will be captured."""
    graphs: list[Graph] = []

    def captured(work: Callable[[], None]) -> Graph:
        graphs.append(Graph(work))
        return graphs[-1]

    monkeypatch.setattr(fixed_search, "captured", captured)
    return graphs


class Again:
    """In place of a CUDA graph."""

    def __init__(self, work: Callable[[], None]) -> None:
        self.replay = work
