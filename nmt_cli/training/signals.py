"""Signals that stop a run after the current update."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP)


@contextmanager
def stop_signals() -> Iterator[Sequence[int]]:
    """Yield the numbers of received signals: SIGTERM, SIGINT, SIGUSR1 (Slurm's warning), SIGHUP (a
    lost terminal).

    A second SIGINT raises KeyboardInterrupt. Outside the main thread there are none.
    """
    received: list[int] = []

    def record(number: int, _frame: FrameType | None) -> None:
        if received and number == signal.SIGINT:
            raise KeyboardInterrupt
        received.append(number)

    ignored = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN  # as `nohup` sets it
    caught = [number for number in _SIGNALS if number != signal.SIGHUP or not ignored]
    in_main = threading.current_thread() is threading.main_thread()
    before = {number: signal.signal(number, record) for number in caught if in_main}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
