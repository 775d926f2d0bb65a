"""Results come in order, errors at their place, and the thread does not outlive its context."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import torch

from nmt_cli.data import prefetch
from nmt_cli.data.prefetch import Prefetcher

CPU = torch.device("cpu")


@pytest.mark.parametrize("ahead", [1, 3, 50])
def test_results_come_in_order(ahead: int) -> None:
    with Prefetcher(lambda number: number * 2, range(20), ahead, CPU) as made:
        assert list(made) == list(range(0, 40, 2))


def test_a_bounded_number_is_made_ahead() -> None:
    begun: list[int] = []
    with Prefetcher(begun.append, iter(int, 1), 3, CPU) as made:
        for _ in range(5):
            next(made)
    assert 5 <= len(begun) <= 5 + 3


def test_an_error_is_raised_at_its_place() -> None:
    def items() -> Iterator[int]:
        yield 1
        yield 0
        raise KeyError("items")

    with Prefetcher(lambda number: 2 // number, items(), 2, CPU) as made:
        assert next(made) == 2
        with pytest.raises(ZeroDivisionError):
            next(made)
    with Prefetcher(abs, items(), 3, CPU) as made:
        assert [next(made), next(made)] == [1, 0]
        with pytest.raises(KeyError, match="items"):
            next(made)


def test_waiting_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    with Prefetcher(abs, range(3), 2, CPU) as made, monkeypatch.context() as patch:
        clock = iter([10.0, 10.5, 20.0, 21.0])
        patch.setattr(prefetch.time, "perf_counter", lambda: next(clock))
        assert [next(made), next(made)] == [0, 1]
        assert made.waited == 1.5


def test_the_thread_ends_with_its_context() -> None:
    def running() -> bool:
        return any(thread.name.startswith("prefetch") for thread in threading.enumerate())

    def stop() -> None:
        with Prefetcher(abs, iter(int, 1), 2, CPU) as made:
            assert next(made) == 0
            assert running()
            raise RuntimeError("stopped")

    with pytest.raises(RuntimeError, match="stopped"):
        stop()
    assert not running()
