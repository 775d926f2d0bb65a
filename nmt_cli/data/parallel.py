"""Apply a function to a stream of items in worker processes: results in order, memory constant."""

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

_state: Any = None  # in a worker process: the first argument of the function


def chunks(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Yield the items in lists of `size`; the last may be shorter."""
    stream = iter(items)
    while chunk := list(islice(stream, size)):
        yield chunk


def mapped(
    function: Callable[[State, Item], Result], state: State, items: Iterable[Item], workers: int
) -> Iterator[tuple[Item, Result]]:
    """Yield each item with `function(state, item)`, in order, for any number of `workers`.

    Args:
        function: can be pickled.
        state: copied to every process once.

    Raises:
        NmtError: a worker process died, or the error that `function` raised.
    """
    if workers <= 1:
        for item in items:
            yield item, function(state, item)
        return
    waiting: deque[tuple[Item, Future[Result]]] = deque()
    executor = ProcessPoolExecutor(workers, _context(), _start, (state,))
    try:
        for item in items:
            waiting.append((item, executor.submit(_call, function, item)))
            if len(waiting) > workers * _AHEAD:
                first, future = waiting.popleft()
                yield first, future.result()
        for item, future in waiting:
            yield item, future.result()
    except BrokenProcessPool as error:
        raise NmtError("a worker process died, probably out of memory; try again with fewer --workers") from error
    finally:
        executor.shutdown(cancel_futures=True)


def apart(work: Callable[[], Result]) -> Result:
    """Return `work()`, run in a separate process.

    Ctrl-C then ends it at once even inside a C++ library, and its memory is returned.

    Raises:
        NmtError: the process died, or the error that `work` raised.
    """
    receiver, sender = _context().Pipe(duplex=False)
    process = _context().Process(target=_report, args=(work, sender))
    process.start()
    sender.close()
    try:
        result, error = receiver.recv()
    except EOFError:
        raise NmtError("a worker process died, probably out of memory; try again with less text") from None
    finally:
        process.terminate()
        process.join()
    if error is not None:
        raise error
    return result  # type: ignore[no-any-return]


def available_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _context() -> Any:
    return multiprocessing.get_context("fork" if "fork" in multiprocessing.get_all_start_methods() else "spawn")


def _report(work: Callable[[], Any], sender: Connection) -> None:
    _start(None)
    try:
        sender.send((work(), None))
    except Exception as error:
        sender.send((None, error))


def _start(state: Any) -> None:
    """Prepare a worker process: it leaves Ctrl-C to its parent and ends when its parent does."""
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
