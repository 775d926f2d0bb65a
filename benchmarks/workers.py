"""The processes of the systems that are measured, seen from the benchmark."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.samples import Sample

ROOT = Path(__file__).resolve().parent.parent
PAUSE = 0.25
"""Seconds before a sample, in which the threads of the system before it go to sleep (OpenMP's spin for 0.2)."""


class WorkerError(Exception):
    """A system cannot be started, or failed; the message is the last line that it wrote."""


@dataclass(frozen=True)
class System:
    """A system and its type of arithmetic."""

    peer: str  # the name of a file of benchmarks/peers
    dtype: str

    @property
    def name(self) -> str:
        return f"{self.peer} {self.dtype}"

    @classmethod
    def parse(cls, text: str) -> System:
        """Read `PEER:DTYPE`; float32 if there is no DTYPE."""
        peer, _, dtype = text.partition(":")
        return cls(peer, dtype or "float32")


class Worker:
    """A system in its own process and interpreter; it sleeps unless it is asked for something.

    Raises:
        WorkerError: the system cannot be started, in `__init__`, or failed.
    """

    def __init__(self, system: System, python: str, setup: Mapping[str, Any]) -> None:
        self.system = system
        self.log = tempfile.TemporaryFile("w+")  # noqa: SIM115
        environment = {**os.environ, "OMP_NUM_THREADS": str(setup["cores"]), "HF_HUB_OFFLINE": "1"}
        try:
            self.process = subprocess.Popen(
                [python, "-m", f"benchmarks.peers.{system.peer}"],
                cwd=ROOT,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self.log,
                text=True,
            )
        except OSError as error:
            raise WorkerError(f"{system.name}: cannot start its interpreter: {error.strerror}") from error
        try:
            self.version = str(self.ask({**setup, "dtype": system.dtype})["version"])
        except WorkerError:
            self.close()
            raise

    def ask(self, request: Mapping[str, Any]) -> Any:
        """Send a request and return the reply."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
        if reply := self.process.stdout.readline():
            return json.loads(reply)
        self.process.wait()
        self.log.seek(0)
        said = self.log.read().strip().split("\n")
        raise WorkerError(f"{self.system.name}: {said[-1] or f'ended with {self.process.returncode}'}")

    def translate(self, sources: Sequence[Sequence[int]]) -> list[list[int]]:
        """Return the best output of each source."""
        outputs: list[list[int]] = self.ask({"translate": sources})["outputs"]
        return outputs

    def sample(
        self, case: Mapping[str, Any], number: int, sources: Sequence[Any], batch: int, seconds: float
    ) -> Sample:
        """Return a sample of at least `seconds`, in sentences; `number` is that of the round."""
        time.sleep(PAUSE)
        reply = self.ask({"sources": sources, "batch": batch, "seconds": seconds})
        return Sample(case, self.system.name, number, reply["amount"], reply["seconds"])

    def close(self) -> None:
        """End the process."""
        self.process.communicate()  # closes its standard input
        self.log.close()


@contextlib.contextmanager
def started(
    systems: Sequence[System], pythons: Mapping[str, str], setup: Mapping[str, Any]
) -> Iterator[tuple[list[Worker], dict[str, str]]]:
    """Yield the workers of the systems that start, and the reasons why the others do not.

    Args:
        pythons: the interpreter of each peer.
        setup: `benchmarks.peers.serve.Setup` without `dtype`.
    """
    workers, reasons = [], {}
    with contextlib.ExitStack() as stack:
        for system in systems:
            try:
                workers.append(Worker(system, pythons[system.peer], setup))
            except WorkerError as error:
                reasons[system.name] = str(error)
            else:
                stack.callback(workers[-1].close)
        yield workers, reasons


def take_turns(
    workers: Sequence[Worker], case: Mapping[str, Any], rounds: int, sources: Sequence[Any], batch: int, seconds: float
) -> Iterator[Sample]:
    """Yield samples of each worker in turn (A B C A B C ...), so that a disturbance of the machine meets all alike."""
    for number in range(rounds):
        rotated = [*sources[number * batch % len(sources) :], *sources[: number * batch % len(sources)]]
        for worker in workers:
            yield worker.sample(case, number, rotated, batch, seconds)
