"""The process of a system whose training is measured: it makes passes over given batches.

Runs in the interpreters of other programs, as `benchmarks.peers.serve`.
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from benchmarks.peers.serve import Answer, Ids, Size, answer_requests, check_dtype

PAD, UNK, BOS, EOS = 0, 1, 2, 3
DROPOUT, SMOOTHING = 0.1, 0.1
ADAM: dict[str, Any] = {"lr": 1e-4, "betas": (0.9, 0.98), "eps": 1e-9}


@dataclass(frozen=True)
class Setup(Size):
    """What a system is told at the start. Ids: as in `benchmarks.peers.serve.Setup`."""

    dtype: str
    cores: int
    tokens: int  # source tokens, and target tokens, of a batch at most, with padding
    pairs: list[tuple[Ids, Ids]]  # the sources and the targets of each batch, without EOS


class Batch(NamedTuple):
    """Sentence pairs, padded on the right."""

    source: Tensor  # [B, S], EOS included
    target_in: Tensor  # [B, T], from BOS
    target_out: Tensor  # [B, T], to EOS
    tokens: int  # of the targets, EOS included


class System(NamedTuple):
    """A program that is ready to train."""

    version: str
    one_pass: Callable[[], float]  # an update with each batch, which returns the real target tokens
    padding: float | None = None  # share of the target positions, if known
    # Returns the seconds that it has waited for data so far, if it knows.
    waiting: Callable[[], float] | None = None
    # Returns the peak in bytes, where this process does not train.
    memory: Callable[[], int] | None = None


def serve(build: Callable[[Setup], System], dtypes: Sequence[str]) -> None:
    """Answer requests for samples until standard input closes."""

    def start(setup: dict[str, Any]) -> tuple[str, Answer]:
        torch.manual_seed(1)
        torch.set_num_threads(setup["cores"])
        check_dtype(setup["dtype"], dtypes)
        system = build(Setup(**setup))
        system.one_pass()  # allocates, traces and compiles

        def answer(request: dict[str, Any]) -> dict[str, Any]:
            waited = system.waiting() if system.waiting else 0.0
            figures: dict[str, Any] = sample(system.one_pass, request["seconds"])
            if system.waiting:
                figures["waiting"] = (system.waiting() - waited) / figures["seconds"]
            return {
                **figures,
                "padding": system.padding,
                "memory": (system.memory or peak_memory)(),
            }

        return system.version, answer

    answer_requests(start)


def sample(one_pass: Callable[[], float], seconds: float) -> dict[str, float]:
    """Make passes for at least `seconds`."""
    amount, elapsed, began = 0.0, 0.0, time.perf_counter()
    while not amount or elapsed < seconds:
        amount += one_pass()
        elapsed = time.perf_counter() - began
    return {"amount": amount, "seconds": elapsed}


def peak_memory() -> int:
    """Return the largest resident memory of this process so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (
        1 if sys.platform == "darwin" else 1024
    )


def system_of(version: str, setup: Setup, step: Callable[[Batch], Any]) -> System:
    """Return the system that makes an update with `step`."""
    batches = [collate(*pairs) for pairs in setup.pairs]
    tokens = sum(batch.tokens for batch in batches)

    def one_pass() -> float:
        for batch in batches:
            step(batch)
        return tokens

    return System(
        version, one_pass, 1 - tokens / sum(batch.target_out.numel() for batch in batches)
    )


def collate(sources: Ids, targets: Ids) -> Batch:
    """Return the padded batch of sentences without BOS and EOS."""
    return Batch(
        padded([[*ids, EOS] for ids in sources]),
        padded([[BOS, *ids] for ids in targets]),
        padded([[*ids, EOS] for ids in targets]),
        sum(len(ids) + 1 for ids in targets),
    )


def padded(rows: Sequence[Sequence[int]]) -> Tensor:
    width = max(map(len, rows))
    return torch.tensor([[*row, *[PAD] * (width - len(row))] for row in rows])
