"""A function over a stream of items in several processes; results in the order of the items, memory flat."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import islice
from multiprocessing.connection import Connection
from typing import Any, TypeVar

from nmt_cli.errors import NmtError

State = TypeVar("State")
Item = TypeVar("Item")
Result = TypeVar("Result")

_AHEAD = 4  # items in flight for each process

_state: Any = None  # a worker process's own copy of what the function works with


def chunks(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """The items in lists of `size`; the last may be shorter."""
    stream = iter(items)
    while chunk := list(islice(stream, size)):
        yield chunk


def mapped(
    function: Callable[[State, Item], Result], state: State, items: Iterable[Item], workers: int
) -> Iterator[tuple[Item, Result]]:
    """Each item with `function(state, item)`, in order, whatever the number of `workers`.

    Args:
        function: a function of a module's top level.
        state: copied to every process once.

    Raises:
        NmtError: a worker process died, as when the machine runs out of memory; or what `function` raised.
    """
    if workers <= 1:
        for item in items:
            yield item, function(state, item)
        return
    executor = ProcessPoolExecutor(workers, _context(), _start, (state,))
    try:
        yield from _in_order(executor, function, items, workers * _AHEAD)
    except BrokenProcessPool as error:
        raise NmtError(
            "a worker process died, probably because memory ran out; try again with fewer --workers"
        ) from error
    finally:
        executor.shutdown(cancel_futures=True)


def apart(work: Callable[[], Result]) -> Result:
    """`work()`, done by a process of its own: Ctrl-C ends it at once even while a C++ library is busy, and the memory
    that it took is given back.

    Args:
        work: can be pickled, as can its result.

    Raises:
        NmtError: the process died; or what `work` raised.
    """
    receiver, sender = _context().Pipe(duplex=False)
    process = _context().Process(target=_report, args=(work, sender))
    process.start()
    sender.close()
    try:
        result, error = receiver.recv()
    except EOFError:
        raise NmtError(
            "a process died, probably because memory ran out; try again with less text or memory free"
        ) from None
    finally:
        process.terminate()
        process.join()
    if error is not None:
        raise error
    return result  # type: ignore[no-any-return]


def available_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _in_order(
    executor: ProcessPoolExecutor, function: Callable[[Any, Item], Result], items: Iterable[Item], ahead: int
) -> Iterator[tuple[Item, Result]]:
    waiting: deque[tuple[Item, Future[Result]]] = deque()
    for item in items:
        waiting.append((item, executor.submit(_call, function, item)))
        if len(waiting) > ahead:
            first, future = waiting.popleft()
            yield first, future.result()
    for item, future in waiting:
        yield item, future.result()


def _context() -> Any:
    return multiprocessing.get_context("fork" if "fork" in multiprocessing.get_all_start_methods() else "spawn")


def _report(work: Callable[[], Any], sender: Connection) -> None:
    _start(None)
    try:
        sender.send((work(), None))
    except Exception as error:
        sender.send((None, error))


def _start(state: Any) -> None:
    """What a worker process does first: takes its copy, leaves Ctrl-C to its parent and dies with it."""
    global _state
    _state = state
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _call(function: Callable[[Any, Item], Result], item: Item) -> Result:
    return function(_state, item)
