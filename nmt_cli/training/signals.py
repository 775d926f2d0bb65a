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
    """Yield a list, to which the numbers of received signals are added.

    They are SIGTERM, SIGINT, SIGUSR1 (Slurm's warning) and SIGHUP (a lost terminal). A second
    SIGINT raises KeyboardInterrupt. Only the main thread can receive signals.
    """
    received: list[int] = []

    def record(number: int, _frame: FrameType | None) -> None:
        if received and number == signal.SIGINT:
            raise KeyboardInterrupt
        received.append(number)

    former_handlers = {}
    if threading.current_thread() is threading.main_thread():
        for number in _SIGNALS:
            if number == signal.SIGHUP and signal.getsignal(number) == signal.SIG_IGN:
                continue  # `nohup` asks for it
            former_handlers[number] = signal.signal(number, record)
    try:
        yield received
    finally:
        for number, handler in former_handlers.items():
            signal.signal(number, handler)
