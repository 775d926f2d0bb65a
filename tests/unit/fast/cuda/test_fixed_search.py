from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakSet

import pytest
import torch

from nmt_cli.fast.cuda import fixed_search as module
from nmt_cli.fast.cuda.fixed_search import captured


class Pools:
    """The pools of memory of two GPUs' graphs. A pool that its last graph has left is dead."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.device = 0
        self.users = Counter[tuple[int, int]]()  # of a pool on a device
        monkeypatch.setattr(torch.cuda, "current_device", lambda: self.device)
        monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda: PooledGraph(self))
        monkeypatch.setattr(torch.cuda, "graph", self.capture)

    @contextmanager
    def capture(self, graph: PooledGraph, pool: int | None, **_: Any) -> Iterator[None]:
        place = (self.device, pool or 1 + len(self.users))
        if self.users.get(place) == 0:
            raise RuntimeError("use_count > 0 INTERNAL ASSERT FAILED")
        self.users[place] += 1
        graph.place = place
        yield


class PooledGraph:
    place: tuple[int, int]

    def __init__(self, pools: Pools) -> None:
        self.pools = pools

    def pool(self) -> int:
        return self.place[1]

    def __del__(self) -> None:
        if hasattr(self, "place"):
            self.pools.users[self.place] -= 1


def test_graphs_share_memory_as_long_as_one_of_them_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second model in one process may come when the graphs of the first are gone.

    Devices have their own pools.
    """
    monkeypatch.setattr(module, "_graphs", defaultdict(WeakSet))
    pools = Pools(monkeypatch)
    graphs = [captured(lambda: None), captured(lambda: None)]
    assert graphs[0].pool() == graphs[1].pool()
    del graphs[0]
    graphs.append(captured(lambda: None))
    assert graphs[0].pool() == graphs[1].pool()
    graphs.clear()
    graphs.append(captured(lambda: None))

    pools.device = 1
    other = captured(lambda: None)
    del other
    captured(lambda: None)
    assert sum(pools.users.values()) == 1
