"""Stopping in good order: a signal asks, the loop finishes its step, saves and leaves."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any, Self

_ASKED_FOR = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP)


class StopRequest:
    """A context in which SIGTERM, SIGINT, SIGUSR1 (Slurm's warning) and SIGHUP (a terminal lost) are remembered instead
    of obeyed.

    A second SIGINT raises KeyboardInterrupt at once. SIGHUP stays ignored where `nohup` had it ignored. Outside the
    main thread it does nothing.
    """

    def __init__(self) -> None:
        self.signal_number = 0  # the first one that came; 0 for none
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in _ASKED_FOR:
                if number == signal.SIGHUP and signal.getsignal(number) == signal.SIG_IGN:
                    continue
                self._before[number] = signal.signal(number, self._remember)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _remember(self, number: int, _frame: FrameType | None) -> None:
        if self.signal_number and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.signal_number = self.signal_number or number
