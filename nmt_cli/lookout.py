"""How the processes of one run hear of each other besides their sums: who lives, who lags, and why one ended.

Twice a second each tells the others, through the store at which they met, that it lives and how many sums it has come
to. So whoever waits in vain can name the process that is missing, and one of them alone tells the user why a run ends.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from typing import Any, Protocol

HEARTBEAT = 0.5
"""Seconds between two signs of life."""

SILENCE = 5.0
"""Seconds without one, after which a process is called dead. Only asked once something went wrong."""

MAIN_SPEAKS_WITHIN = 10.0
"""Seconds after which another process tells the user what went wrong, where the main one does not; and seconds that
the main one stays, so that the others can read it from the store that it holds."""

_STORE_MAY_BE_GONE = suppress(RuntimeError)
"""Around what asks the store: it goes with the process that holds it."""


class Store(Protocol):
    """What is used of `torch.distributed.Store`."""

    def set(self, key: str, value: str) -> None: ...

    def get(self, key: str) -> bytes: ...

    def check(self, keys: list[str]) -> bool: ...

    def compare_set(self, key: str, expected: str, desired: str) -> bytes: ...


@dataclass(frozen=True)
class Failure:
    """Why a run ends: what the process `rank` did or said."""

    rank: int
    exit_code: int
    message: str


class Lookout:
    """One process's place in the watch over all of them.

    Args:
        patience: seconds that this process waits for the others before it ends the run.
    """

    def __init__(self, store: Store, rank: int, size: int, patience: float) -> None:
        self._store, self._rank, self._size, self._patience = store, rank, size, patience
        self._beats = 0
        self._sums = 0
        self._waiting_since: float | None = None
        self._known: Failure | None = None
        self._ended = threading.Event()
        self._leaving = threading.Lock()  # held by the one thread that ends this process
        self._beat()
        threading.Thread(target=self._watch, name="lookout", daemon=True).start()

    def stop(self) -> None:
        """Ends the watch."""
        self._ended.set()

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Around all that needs the other processes."""
        self._sums += 1
        self._waiting_since = time.monotonic()
        try:
            yield
        finally:
            self._waiting_since = None

    def explain(self, error: BaseException) -> Failure:
        """Why the others could not be reached: what one of them said, or who has fallen silent."""
        self._leaving.acquire()  # for ever, where the watch is about to end this process
        with _STORE_MAY_BE_GONE:
            for _ in range(round(SILENCE / HEARTBEAT / 2)):
                if said := self._said():
                    return said
                time.sleep(HEARTBEAT)
            return self.declare(self._missing(str(error)))
        return self._known or _store_is_gone(self._rank)

    def declare(self, failure: Failure) -> Failure:
        """Makes it the reason why the run ends, unless there is one before; returns the reason."""
        with _STORE_MAY_BE_GONE:
            return _read(self._store.compare_set("failure", "", json.dumps(asdict(failure))))
        return failure

    def may_speak(self) -> bool:
        """Whether this process is the one that tells the user: the main one, or another where that one cannot."""
        with _STORE_MAY_BE_GONE:
            if self._rank == 0:
                self._store.set("spoken", "0")
                return True
            for _ in range(round(MAIN_SPEAKS_WITHIN / HEARTBEAT)):
                if self._store.check(["spoken"]):
                    return False
                time.sleep(HEARTBEAT)
            return self._store.compare_set("spoken", "", str(self._rank)) == str(self._rank).encode()
        return self._known is None  # else the main process knew it, too, and held the store until it had spoken

    def linger(self) -> None:
        """Keeps the store alive, where this process holds it, until the others have read from it why the run ends."""
        with _STORE_MAY_BE_GONE:
            self._store.set(f"gone/{self._rank}", "1")
            if self._rank == 0:
                everyone = [f"gone/{rank}" for rank in range(self._size)]
                for _ in range(round(MAIN_SPEAKS_WITHIN / HEARTBEAT)):
                    if self._store.check(everyone):
                        return
                    time.sleep(HEARTBEAT)

    def _watch(self) -> None:
        while not self._ended.wait(HEARTBEAT):
            try:
                self._beat()
                failure = self._said()
            except RuntimeError:
                failure = self._known or _store_is_gone(self._rank)
            since = self._waiting_since
            if since is None:
                continue
            if failure is None and time.monotonic() - since > self._patience:
                failure = self.declare(self._missing(""))
            if failure is not None:
                self._leave(failure)

    def _leave(self, failure: Failure) -> None:
        """Ends this process, whose main thread waits for a sum that will never come."""
        if not self._leaving.acquire(blocking=False):
            return
        if self.may_speak():
            print(f"nmt: {told(failure, self._rank)}", file=sys.stderr, flush=True)
        self.linger()
        os._exit(failure.exit_code)

    def _beat(self) -> None:
        self._beats += 1
        self._store.set(f"alive/{self._rank}", f"{self._beats} {self._sums}")

    def _said(self) -> Failure | None:
        if self._known is None and self._store.check(["failure"]):
            self._known = _read(self._store.get("failure"))
        return self._known

    def _missing(self, error: str) -> Failure:
        """Watches the others for a while, and names those that no longer live, or else those that lag."""
        before = self._heard()
        for _ in range(round(SILENCE / HEARTBEAT)):
            time.sleep(HEARTBEAT)
            self._beat()  # it may be the watch itself that is busy here
        after = self._heard()
        others = [rank for rank in range(self._size) if rank != self._rank]
        never = [rank for rank in others if after[rank] is None]
        silent = [rank for rank in others if after[rank] == before[rank]]
        late = [rank for rank in others if (after[rank] or (0, 0))[1] < self._sums]
        for ranks, what in (
            (never, "never came to the others"),
            (silent, f"died or hangs: it has given no sign of life for {SILENCE:g} seconds"),
            (late, f"lives, but has not come for {self._patience:g} seconds to where the others wait for it"),
        ):
            if ranks:
                return Failure(ranks[0], 1, "; ".join(f"rank {rank} {what}" for rank in ranks))
        return Failure(self._rank, 1, f"the connection between the processes broke: {error}")

    def _heard(self) -> list[tuple[int, int] | None]:
        """Signs of life and sums of each rank."""
        heard: list[tuple[int, int] | None] = []
        for rank in range(self._size):
            key = f"alive/{rank}"
            beats, sums = self._store.get(key).split() if self._store.check([key]) else (b"", b"")
            heard.append((int(beats), int(sums)) if beats else None)
        return heard


def told(failure: Failure, rank: int) -> str:
    """The failure in the words of the process `rank`."""
    own = failure.rank == rank or failure.message.startswith("rank ")
    message = failure.message if own else f"rank {failure.rank} failed: {failure.message}"
    return f"{message}\nThe run ends. The same command goes on from its last checkpoint."


def _store_is_gone(rank: int) -> Failure:
    return Failure(0, 1, f"rank 0 ended without a word, or rank {rank} cannot reach it")


def _read(content: bytes) -> Failure:
    values: dict[str, Any] = json.loads(content)
    return Failure(**values)
