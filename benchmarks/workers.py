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
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import report
from benchmarks.samples import Sample, rates, spread

TRAINING_PEERS = "benchmarks.peers.training"
PRODUCTS = "products"
"""The peer there that computes matrix products only."""
ROOT = Path(__file__).resolve().parent.parent
PAUSE = 0.25
"""Seconds before a sample, in which the last system's threads go to sleep (OpenMP spins 0.2 s)."""


class WorkerError(Exception):
    """A system cannot be started, or failed. The message is the last line that it wrote."""


class System(NamedTuple):
    """A system and its type of arithmetic."""

    peer: str  # the name of a file of benchmarks/peers
    dtype: str

    @property
    def name(self) -> str:
        return f"{self.peer} {self.dtype}"

    @classmethod
    def parse(cls, text: str) -> System:
        """Read `PEER:DTYPE`. Float32 if there is no DTYPE."""
        peer, _, dtype = text.partition(":")
        return cls(peer, dtype or "float32")


class Worker:
    """A system in its own process and interpreter. It sleeps unless it is asked for something.

    Args:
        setup: what the system is told at the start, without its `dtype`.
        package: of the adapters.

    Raises:
        WorkerError: the system cannot be started, in `__init__`, or failed.
    """

    def __init__(self, system: System, python: str, setup: Mapping[str, Any], package: str) -> None:
        self.system = system
        self.figures: dict[str, Any] = {}  # of the last sample, besides its amount and its seconds
        self.log = tempfile.TemporaryFile("w+")  # noqa: SIM115
        try:
            self.process = subprocess.Popen(
                [python, "-m", f"{package}.{system.peer}"],
                cwd=ROOT,
                env={**os.environ, "OMP_NUM_THREADS": str(setup["cores"]), "HF_HUB_OFFLINE": "1"},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self.log,
                text=True,
            )
        except OSError as error:
            raise WorkerError(
                f"{system.name}: cannot start its interpreter: {error.strerror}"
            ) from error
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
        raise WorkerError(
            f"{self.system.name}: {said[-1] or f'ended with {self.process.returncode}'}"
        )

    def sample(self, case: Mapping[str, Any], number: int, request: Mapping[str, Any]) -> Sample:
        """Return the sample that `request` asks for, in the round `number`."""
        time.sleep(PAUSE)
        reply = self.ask(request)
        sample = Sample(case, self.system.name, number, reply.pop("amount"), reply.pop("seconds"))
        print(f"{dict(case)}, round {number}: {sample.system} {sample.rate:.3g}", file=sys.stderr)
        self.figures = reply
        return sample

    def close(self) -> None:
        """End the process."""
        self.process.communicate()  # closes its standard input
        self.log.close()


@contextlib.contextmanager
def started(
    systems: Sequence[System], pythons: Mapping[str, str], setup: Mapping[str, Any], package: str
) -> Iterator[tuple[list[Worker], list[str]]]:
    """Yield the workers of the systems that start, and the reasons why the others do not.

    Args:
        pythons: the interpreter of each peer.
        setup, package: as of `Worker`.
    """
    workers, reasons = [], []
    with contextlib.ExitStack() as stack:
        for system in systems:
            try:
                workers.append(Worker(system, pythons[system.peer], setup, package))
            except WorkerError as error:
                reasons.append(str(error))
            else:
                stack.callback(workers[-1].close)
        yield workers, reasons


def take_turns(
    workers: Sequence[Worker],
    case: Mapping[str, Any],
    rounds: int,
    request: Callable[[int], Mapping[str, Any]],
) -> list[Sample]:
    """Return samples of each worker in turn (A B C A B C ...), so that noise meets all alike.

    Args:
        request: returns the request for the samples of a round.
    """
    return [
        worker.sample(case, number, request(number))
        for number in range(rounds)
        for worker in workers
    ]


def speed_parser(
    name: str, about: str | None, systems: str, rounds: int, seconds: float
) -> argparse.ArgumentParser:
    """Return the parser of a benchmark that compares the speed of `systems`, words PEER:DTYPE."""
    parser = report.parser(name, about, rounds)
    default = [System.parse(word) for word in systems.split()]
    parser.add_argument(
        "--systems",
        nargs="+",
        type=System.parse,
        default=default,
        metavar="PEER:DTYPE",
        help=f"default: {systems}",
    )
    parser.add_argument(
        "--python", action="append", default=[], metavar="PEER=PATH", help="interpreter of a peer"
    )
    parser.add_argument(
        "--seconds", type=float, default=seconds, metavar="X", help="least time of a sample"
    )
    parser.add_argument(
        "--cores", type=report.positive, default=report.cores(), metavar="N", help="default: all"
    )
    return parser


def interpreters(
    parser: argparse.ArgumentParser, options: argparse.Namespace, peers: Sequence[str]
) -> dict[str, str]:
    """Return the interpreter of each peer, this one by default.

    End the program if there is no such peer.
    """
    given = dict(text.partition("=")[::2] for text in options.python)
    for peer in [*given, *(system.peer for system in options.systems)]:
        if peer not in peers or given.get(peer) == "":
            parser.error(f"there is no peer {peer!r}, or no path: the peers are {', '.join(peers)}")
    return {**dict.fromkeys([*peers, PRODUCTS], sys.executable), **given}


def products_of(systems: Sequence[System]) -> list[System]:
    """Return the matrix products in the types of `systems`."""
    return [System(PRODUCTS, dtype) for dtype in dict.fromkeys(system.dtype for system in systems)]


def peaks(samples: Sequence[Sample], case: Mapping[str, Any], products: Sequence[System]) -> str:
    """Return a sentence about the samples of `products` that there are."""
    rates_by_dtype = {
        product.dtype: [*rates(samples, case, product.name).values()] for product in products
    }
    shown = [
        f"{dtype} {report.shown(spread([rate / 1e9 for rate in dtype_rates]))}"
        for dtype, dtype_rates in rates_by_dtype.items()
        if dtype_rates
    ]
    return f"Peak of the products in GFLOP/s: {', '.join(shown)}."
