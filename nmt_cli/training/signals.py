"""Signals that stop a run after the current update."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any, Self

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP)


class StopRequest:
    """A context that records SIGTERM, SIGINT, SIGUSR1 (Slurm's warning) and SIGHUP (a lost terminal).

    A second SIGINT raises KeyboardInterrupt. It has no effect outside the main thread.
    """

    def __init__(self) -> None:
        self.signal_number = 0  # of the first signal; 0 means none
        self._handlers: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:  # which `nohup` sets
                    self._handlers[number] = signal.signal(number, self._record)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def _record(self, number: int, _frame: FrameType | None) -> None:
        if self.signal_number and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.signal_number = self.signal_number or number
