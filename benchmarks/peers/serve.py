"""The process of a system that is measured: it loads a model, then answers requests.

Requests and replies are lines of JSON. This file and the adapters beside it run in the interpreters
of other programs, so they import nothing else of this project, but those of nmt and of CTranslate2,
which is an extra of it.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

Ids = list[list[int]]
Translate = Callable[[Ids], Ids]
Answer = Callable[[dict[str, Any]], dict[str, Any]]  # of a request


@dataclass(frozen=True)
class Size:
    """The size of a model."""

    layers: int  # of the encoder, and of the decoder
    width: int
    inner: int  # width of the feed-forward layers
    heads: int
    vocabulary: int


@dataclass(frozen=True)
class Setup(Size):
    """What a system is told at the start.

    Ids: 0 padding, 1 unknown, 2 begin, 3 end of sentence, words from 4.
    """

    checkpoint: str  # of nmt, whose weights all systems use
    dtype: str
    cores: int
    beam: int
    alpha: float
    steps: int  # tokens of every output, the end of the sentence included
    device: str = "cpu"


def word(number: int) -> str:
    """Return a word with this id, for programs that read text."""
    return f"{number:06}"


class System(NamedTuple):
    """A loaded system."""

    version: str
    # Sources without their end -> the best output of each. One call is one batch.
    translate: Translate


Build = Callable[[Setup], System]


def serve(build: Build, dtypes: Sequence[str], divided: bool = False) -> None:
    """Answer requests for translations and for samples until standard input closes.

    Args:
        dtypes: the types of arithmetic of this system.
        divided: whether processes of one thread each translate a part of a call, as nmt's and
            CTranslate2's do.
    """

    def start(fields: dict[str, Any]) -> tuple[str, Answer]:
        setup = Setup(**fields)
        check_dtype(setup.dtype, dtypes)
        on_cores = divided and setup.device == "cpu"
        system = divide(build, setup) if on_cores else build(setup)

        def answer(request: dict[str, Any]) -> dict[str, Any]:
            if "translate" in request:
                return {"outputs": system.translate(request["translate"])}
            return sample(system.translate, setup.steps, **request)

        return system.version, answer

    answer_requests(start)


def check_dtype(dtype: str, dtypes: Sequence[str]) -> None:
    """Refuse a type that a system does not have.

    Without this, one that ignores it would be labelled with it.
    """
    if dtype not in dtypes:
        raise SystemExit(f"it computes in {' or '.join(dtypes)} here, not in {dtype}")


def divide(build: Build, setup: Setup) -> System:
    """Return the system of `setup.cores` processes of one thread, which divide each call."""
    context = multiprocessing.get_context("fork")  # before `build`, which may start threads
    pipes = []
    for _ in range(setup.cores):
        our_end, their_end = context.Pipe()
        context.Process(
            target=translate_parts, args=(build, replace(setup, cores=1), their_end), daemon=True
        ).start()
        their_end.close()
        pipes.append(our_end)
    versions = [receive(pipe) for pipe in pipes]

    def translate(sources: Ids) -> Ids:
        share = -(-len(sources) // len(pipes))
        busy = [pipes[first // share] for first in range(0, len(sources), share)]
        for number, pipe in enumerate(busy):
            pipe.send(sources[number * share :][:share])
        return [row for pipe in busy for row in receive(pipe)]

    return System(versions[0], translate)


def translate_parts(build: Build, setup: Setup, pipe: Any) -> None:
    """Translate what comes from the pipe."""
    system = build(setup)
    pipe.send(system.version)
    while True:
        pipe.send(system.translate(pipe.recv()))


def receive(pipe: Any) -> Any:
    try:
        return pipe.recv()
    except EOFError:
        raise SystemExit(1) from None  # the process has written why it ended


def answer_requests(start: Callable[[dict[str, Any]], tuple[str, Answer]]) -> None:
    """Answer requests until standard input closes. What a library prints goes to standard error.

    Args:
        start: takes the setup, which is the first line; returns the system's version and what
            answers requests.
    """
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # ends what this process has started, too

    def reply(content: dict[str, Any]) -> None:
        replies.write(json.dumps(content) + "\n")
        replies.flush()

    version, answer = start(json.loads(sys.stdin.readline()))
    reply({"version": version})
    for line in sys.stdin:
        reply(answer(json.loads(line)))


def sample(
    translate: Translate, steps: int, sources: Ids, batch: int, seconds: float
) -> dict[str, float]:
    """Translate batches of `sources`, in turn, for at least `seconds`.

    A call before starts workers and fills the processor's cache. Raises ValueError if an output is
    too short.
    """
    translate(sources[:batch])
    sentences, elapsed = 0, 0.0
    began = time.perf_counter()
    while not sentences or elapsed < seconds:
        outputs = translate([sources[(sentences + i) % len(sources)] for i in range(batch)])
        sentences += batch
        elapsed = time.perf_counter() - began
        if any(not steps - 1 <= len(output) <= steps for output in outputs):
            raise ValueError(f"an output does not have {steps} tokens: {outputs}")
    return {"amount": sentences, "seconds": elapsed}
