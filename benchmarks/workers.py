"""The processes of the systems that are measured, seen from the benchmark."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
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

    Args:
        setup: what the system is told at the start, without its `dtype`.
        package: of the adapters.

    Raises:
        WorkerError: the system cannot be started, in `__init__`, or failed.
    """

    def __init__(
        self, system: System, python: str, setup: Mapping[str, Any], package: str = "benchmarks.peers"
    ) -> None:
        self.system = system
        self.figures: dict[str, Any] = {}  # of the last sample, besides its amount and its seconds
        self.log = tempfile.TemporaryFile("w+")  # noqa: SIM115
        environment = {**os.environ, "OMP_NUM_THREADS": str(setup["cores"]), "HF_HUB_OFFLINE": "1"}
        try:
            self.process = subprocess.Popen(
                [python, "-m", f"{package}.{system.peer}"],
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

    def sample(self, case: Mapping[str, Any], number: int, request: Mapping[str, Any]) -> Sample:
        """Return the sample that `request` asks for; `number` is that of the round."""
        time.sleep(PAUSE)
        reply = self.ask(request)
        sample = Sample(case, self.system.name, number, reply.pop("amount"), reply.pop("seconds"))
        self.figures = reply
        return sample

    def close(self) -> None:
        """End the process."""
        self.process.communicate()  # closes its standard input
        self.log.close()


@contextlib.contextmanager
def started(
    systems: Sequence[System],
    pythons: Mapping[str, str],
    setup: Mapping[str, Any],
    package: str = "benchmarks.peers",
) -> Iterator[tuple[list[Worker], dict[str, str]]]:
    """Yield the workers of the systems that start, and the reasons why the others do not.

    Args:
        pythons: the interpreter of each peer.
        setup, package: as of `Worker`.
    """
    workers, reasons = [], {}
    with contextlib.ExitStack() as stack:
        for system in systems:
            try:
                workers.append(Worker(system, pythons[system.peer], setup, package))
            except WorkerError as error:
                reasons[system.name] = str(error)
            else:
                stack.callback(workers[-1].close)
        yield workers, reasons


def take_turns(
    workers: Sequence[Worker], case: Mapping[str, Any], rounds: int, request: Callable[[int], Mapping[str, Any]]
) -> Iterator[Sample]:
    """Yield samples of each worker in turn (A B C A B C ...), so that a disturbance of the machine meets all alike.

    Args:
        request: returns the request for the samples of a round.
    """
    for number in range(rounds):
        for worker in workers:
            yield worker.sample(case, number, request(number))


def translations(sources: Sequence[Any], batch: int, seconds: float) -> Callable[[int], Mapping[str, Any]]:
    """Return the requests of rounds of at least `seconds`, each of which begins at other sources."""

    def request(number: int) -> Mapping[str, Any]:
        first = number * batch % len(sources)
        return {"sources": [*sources[first:], *sources[:first]], "batch": batch, "seconds": seconds}

    return request


def add_interpreters(parser: argparse.ArgumentParser, systems: Sequence[str]) -> None:
    """Add the options that choose the systems, `systems` by default, and their interpreters."""
    parser.add_argument(
        "--systems",
        nargs="+",
        type=System.parse,
        default=[System.parse(each) for each in systems],
        metavar="PEER:DTYPE",
        help=f"default: {' '.join(systems)}",
    )
    parser.add_argument("--python", action="append", default=[], metavar="PEER=PATH", help="interpreter of a peer")


def interpreters(parser: argparse.ArgumentParser, options: argparse.Namespace, peers: Sequence[str]) -> dict[str, str]:
    """Return the interpreter of each peer, this one by default; end the program if there is no such peer."""
    for system in options.systems:
        if system.peer not in peers:
            parser.error(f"there is no peer called {system.peer!r}; there are {', '.join(peers)}")
    pairs = [text.partition("=") for text in options.python]
    for peer, _, path in pairs:
        if peer not in peers or not path:
            parser.error(f"--python takes PEER=PATH, with one of {', '.join(peers)}, not {peer!r}")
    return {**dict.fromkeys(peers, sys.executable), **{peer: path for peer, _, path in pairs}}
