"""Apply a function to a stream of items in worker processes: results in order, memory constant."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from typing import Any, TypeVar

from nmt_cli.errors import NmtError

State = TypeVar("State")
Item = TypeVar("Item")
Result = TypeVar("Result")

MOST = 1024  # processes that a user may ask for

_AHEAD = 4  # items in flight for each process

_HELD = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1}

_REMEDIES = {"fork": "fewer --workers", "spawn": "fewer CPU cores (taskset)"}

_state: Any = None  # in a worker process: the first argument of the function


class WorkerDied(NmtError):
    """A worker process ended by itself, or was killed. The others ended with it."""


class Workers:
    """Worker processes, which start at the first use, for the body of a `with` statement.

    Args:
        state: the first argument of every function. Forked processes share its memory.
        method: "spawn" for a process with CUDA or NCCL, whose copies could hang. It pickles
            `state`.

    Raises:
        NmtError: the system cannot start the processes. `map` raises it, too.
    """

    def __init__(self, state: Any, processes: int, method: str = "fork") -> None:
        context = multiprocessing.get_context(method)
        self._remedy = _REMEDIES[method]
        try:
            self._executor = ProcessPoolExecutor(processes, context, _start, (state,))
        except (OSError, NotImplementedError) as error:
            raise NmtError(
                f"worker processes need semaphores, which this system cannot make ({error}): "
                f"mount /dev/shm, or try again with {self._remedy}: 1 needs none"
            ) from error
        self.processes = processes
        self._most_waiting = processes * _AHEAD

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._executor.shutdown(cancel_futures=True)
            return
        processes = list((self._executor._processes or {}).values())
        for process in processes:
            process.terminate()
        self._executor.shutdown(cancel_futures=True)
        for process in processes:  # the executor forgets them if it could not start all
            process.join()

    def map(
        self, function: Callable[[Any, Item], Result], items: Iterable[Item]
    ) -> Iterator[tuple[Item, Result]]:
        """Yield each item with `function(state, item)`, in order.

        Raises:
            WorkerDied: a worker process died.
            NmtError: the error that `function` raised.
        """
        waiting: deque[tuple[Item, Future[Result]]] = deque()
        try:
            for item in items:
                with _starting(self._remedy):  # the first calls start the processes
                    waiting.append((item, self._executor.submit(_call, function, item)))
                if len(waiting) > self._most_waiting:
                    first, future = waiting.popleft()
                    yield first, future.result()
            for item, future in waiting:
                yield item, future.result()
        except BrokenProcessPool as error:
            raise _died(self._remedy) from error

    def check(self) -> None:
        """Raise WorkerDied if a worker process died, also while there was no work for it."""
        if self._executor._broken:
            raise _died(self._remedy)


def mapped(
    function: Callable[[State, Item], Result],
    state: State,
    items: Iterable[Item],
    workers: int,
    method: str = "fork",
) -> Generator[tuple[Item, Result]]:
    """Yield each item with `function(state, item)`, in order. Errors are as of `Workers.map`."""
    if workers <= 1:
        for item in items:
            yield item, function(state, item)
        return
    with Workers(state, workers, method) as processes, suppress(GeneratorExit):
        # A closed generator lets them finish: one that is killed while it sends blocks the queue.
        yield from processes.map(function, items)


def apart(work: Callable[[], Result]) -> Result:
    """Return `work()`, run in a separate process.

    Ctrl-C then ends it at once even inside a C++ library, and its memory is returned. It needs no
    semaphores.

    Raises:
        NmtError: the process died, or the error that `work` raised.
    """
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_send, args=(sender, work))
    try:
        with _starting():
            process.start()
        sender.close()  # so that the pipe ends when the process does
        result, error = receiver.recv()
    except EOFError as ended:
        raise _died("less text") from ended
    finally:
        if process.pid is not None:
            process.terminate()
            process.join()
    if error is not None:
        raise error
    return result  # type: ignore[no-any-return]


@contextmanager
def _starting(remedy: str = "fewer --workers") -> Iterator[None]:
    """Explain why no process can start, and hold Ctrl-C and other signals back until the end.

    A signal during a fork would be lost, with a traceback, or lose a process. A new process holds
    signals back until it has handlers of its own.
    """
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, _HELD)
    try:
        yield
    except OSError as error:
        reason = error.strerror or error
        raise NmtError(
            f"cannot start worker processes: {reason}; try again with {remedy}, or when fewer "
            "programs run"
        ) from error
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def _start(state: Any) -> None:
    """Prepare a worker process: leave signals of the group to its parent, and end with it."""
    global _state
    _state = state
    os.setpgid(0, 0)
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # not the parent's handler: `Workers` ends it so
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _HELD)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _call(function: Callable[[Any, Item], Result], item: Item) -> Result:
    return function(_state, item)


def _send(sender: Connection, work: Callable[[], Any]) -> None:
    _start(None)
    answer: tuple[Any, Exception | None]
    try:
        answer = work(), None
    except Exception as error:
        error.add_note(traceback.format_exc())  # where it was raised, which a pipe does not carry
        answer = None, error
    sender.send(answer)


def _died(remedy: str) -> WorkerDied:
    return WorkerDied(f"a worker process died, probably out of memory; try again with {remedy}")
