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
    yield from _mapped(function, state, items, workers, "fewer --workers")


def apart(work: Callable[[], Result]) -> Result:
    """Return `work()`, run in a separate process.

    Ctrl-C then ends it at once even inside a C++ library, and its memory is returned.

    Raises:
        NmtError: the process died, or the error that `work` raised.
    """
    ((_, result),) = _mapped(_work, work, [None], 1, "less text")
    return result


def _mapped(
    function: Callable[[State, Item], Result], state: State, items: Iterable[Item], workers: int, remedy: str
) -> Iterator[tuple[Item, Result]]:
    context = multiprocessing.get_context("fork" if "fork" in multiprocessing.get_all_start_methods() else "spawn")
    executor = ProcessPoolExecutor(workers, context, _start, (state,))
    waiting: deque[tuple[Item, Future[Result]]] = deque()
    try:
        for item in items:
            waiting.append((item, executor.submit(_call, function, item)))
            if len(waiting) > workers * _AHEAD:
                first, future = waiting.popleft()
                yield first, future.result()
        for item, future in waiting:
            yield item, future.result()
    except BrokenProcessPool as error:
        raise NmtError(f"a worker process died, probably out of memory; try again with {remedy}") from error
    except BaseException:
        for process in list(executor._processes.values()):
            process.terminate()
        raise
    finally:
        executor.shutdown(cancel_futures=True)


def available_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


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


def _work(work: Callable[[], Result], _: None) -> Result:
    return work()
