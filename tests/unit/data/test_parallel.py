"""Order, results and errors do not depend on the number of processes."""

from __future__ import annotations

import _multiprocessing
import contextlib
import errno
import multiprocessing
import os
import signal
import time
from collections.abc import Iterator
from functools import partial

import pytest

from nmt_cli.data.parallel import apart, mapped
from nmt_cli.errors import DataError, NmtError


def slower_first(factor: int, item: int) -> int:
    time.sleep(0.02 if item == 0 else 0.0)
    return factor * item


def refuse_three(_: None, item: int) -> int:
    if item == 3:
        raise DataError("file:3: broken")
    return item


def die(_: None, item: int) -> int:
    if item == 3:
        os._exit(9)
    return item


def process(_: None, item: int) -> int:
    return os.getpid()


def collect(workers: int) -> None:
    list(mapped(process, None, range(9), workers))


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_results_come_in_order(workers: int) -> None:
    assert list(mapped(slower_first, 10, range(50), workers)) == [(i, 10 * i) for i in range(50)]
    assert (os.getpid() in {pid for _, pid in mapped(process, None, range(5), workers)}) == (
        workers == 1
    )


@pytest.mark.parametrize("workers", [1, 2])
def test_errors_pass_through(workers: int) -> None:
    with pytest.raises(DataError, match="file:3: broken"):
        list(mapped(refuse_three, None, range(9), workers))


def test_dead_worker_is_an_error() -> None:
    with pytest.raises(NmtError, match="process died"):
        list(mapped(die, None, range(9), 2))


@pytest.mark.parametrize("processes", [1, 2])
def test_ctrl_c_at_the_start_of_the_processes_ends_them(
    processes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    fork, children = os.fork, []

    def interrupted_fork() -> int:
        if child := fork():
            children.append(child)
            signal.raise_signal(signal.SIGINT)
        return child

    monkeypatch.setattr(os, "fork", interrupted_fork)
    start = (
        partial(apart, partial(time.sleep, 10_000))
        if processes == 1
        else partial(collect, processes)
    )
    with pytest.raises(KeyboardInterrupt):
        start()
    left = {process.pid for process in multiprocessing.active_children()} & set(children)
    for child in children:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(child, os.WNOHANG)
            os.kill(child, signal.SIGKILL)
    assert len(children) == processes
    assert left == set()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize("possible", [0, 1])
def test_a_system_that_starts_no_process(possible: int, monkeypatch: pytest.MonkeyPatch) -> None:
    fork, left, former = os.fork, [True] * possible, set(multiprocessing.active_children())

    def refuse() -> int:
        if left:
            left.pop()
            return fork()
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", refuse)
    with pytest.raises(NmtError, match=r"Resource temporarily unavailable; .*fewer"):
        collect(2)
    with pytest.raises(NmtError, match="Resource temporarily unavailable"):
        apart(partial(slower_first, 6, 7))
    assert set(multiprocessing.active_children()) <= former


def fail_or_sleep(_: None, item: int) -> None:
    if item == 0:
        raise DataError("broken")
    time.sleep(10_000)


def test_workers_end_whatever_the_parent_does_at_sigterm() -> None:
    former = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        with pytest.raises(DataError):
            list(mapped(fail_or_sleep, None, range(2), 2))
    finally:
        signal.signal(signal.SIGTERM, former)


def test_work_apart() -> None:
    assert apart(partial(slower_first, 6, 7)) == 42
    assert apart(partial(process, None, 0)) != os.getpid()
    with pytest.raises(DataError, match="file:3: broken"):
        apart(partial(refuse_three, None, 3))
    with pytest.raises(NmtError, match="process died"):
        apart(partial(die, None, 3))


def test_a_system_without_semaphores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without /dev/shm, one process still works, as does work apart."""

    def refuse(*_: object) -> None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))

    monkeypatch.setattr(_multiprocessing, "SemLock", refuse)
    assert list(mapped(slower_first, 10, [7], 1)) == [(7, 70)]
    assert apart(partial(slower_first, 6, 7)) == 42
    with pytest.raises(NmtError, match=r"mount /dev/shm, .*fewer --workers: 1 needs none"):
        list(mapped(slower_first, 10, [7], 2))


def test_work_apart_shows_where_a_fault_is() -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        apart(partial(divmod, 1, 0))
    assert "answer = work(), None" in caught.value.__notes__[0]


def test_items_are_not_read_far_ahead() -> None:
    read = 0

    def items() -> Iterator[int]:
        nonlocal read
        while True:
            read += 1
            yield read

    results = mapped(slower_first, 1, items(), 2)
    next(results)
    assert read < 20
    results.close()
