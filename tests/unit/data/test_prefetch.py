"""Results come in order, errors at their place, and the thread does not outlive its context."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing

import pytest
import torch

from nmt_cli.data.prefetch import prefetched

CPU = torch.device("cpu")


@pytest.mark.parametrize("ahead", [1, 3, 50])
def test_results_come_in_order(ahead: int) -> None:
    with closing(prefetched(lambda number: number * 2, range(20), ahead, CPU)) as results:
        assert list(results) == list(range(0, 40, 2))


def test_a_bounded_number_is_made_ahead() -> None:
    begun: list[int] = []
    with closing(prefetched(begun.append, iter(int, 1), 3, CPU)) as results:
        for _ in range(5):
            next(results)
    assert 5 <= len(begun) <= 5 + 3


def test_an_error_is_raised_at_its_place() -> None:
    def items() -> Iterator[int]:
        yield 1
        yield 0
        raise KeyError("items")

    with closing(prefetched(lambda number: 2 // number, items(), 2, CPU)) as results:
        assert next(results) == 2
        with pytest.raises(ZeroDivisionError):
            next(results)
    with closing(prefetched(abs, items(), 3, CPU)) as results:
        assert [next(results), next(results)] == [1, 0]
        with pytest.raises(KeyError, match="items"):
            next(results)


def test_the_thread_ends_with_its_context() -> None:
    def running() -> bool:
        return any(thread.name.startswith("prefetch") for thread in threading.enumerate())

    def stop() -> None:
        with closing(prefetched(abs, iter(int, 1), 2, CPU)) as results:
            assert next(results) == 0
            assert running()
            raise RuntimeError("stopped")

    with pytest.raises(RuntimeError, match="stopped"):
        stop()
    assert not running()
