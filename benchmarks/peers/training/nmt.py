"""nmt: the command `nmt train` itself, paused between passes.

Its learning-rate schedule is a component like any other, and is asked for the rate at the start of each update. The
schedule here waits there until a pass is wanted, so nothing of the training is replaced. Training runs in the main
thread, as it handles signals, and the answers to requests in another.
"""

from __future__ import annotations

import json
import os
import queue
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import nmt_cli
from benchmarks.peers.training.serve import ADAM, DROPOUT, SMOOTHING, Setup, System, serve
from benchmarks.synthetic import ENDLESS, NOTHING_ELSE, model_flags, write_corpus
from nmt_cli.commands.train import run
from nmt_cli.commands.train_options import TrainOptions
from nmt_cli.registry import register
from nmt_cli.training.run_directory import METRICS

COPIES = 50
"""Copies of the sentences in the corpus, so that they fill nmt's own batches."""


@dataclass(frozen=True)
class PacedConfig:
    """The schedule has no settings."""


@register("schedule", "paced", PacedConfig)
class Paced:
    """A schedule that waits before each update until it is allowed."""

    allowed, reached = threading.Semaphore(0), threading.Semaphore(0)
    ended = False

    def __init__(self, config: PacedConfig, *, d_model: int) -> None:
        self.step = 0

    def __call__(self, step: int) -> float:
        if step > self.step:
            self.step = step
            self.reached.release()
            self.allowed.acquire()
            if Paced.ended:
                raise SystemExit
        return float(ADAM["lr"])


def answer(folder: Path, setups: queue.Queue[Setup | None]) -> None:
    """Answer requests until standard input closes; then end the training.

    Args:
        folder: of the training's files.
        setups: receives the setup, or None if there is none.
    """

    def build(setup: Setup) -> System:
        setups.put(setup)
        Paced.reached.acquire()

        def one_pass() -> float:
            before = newest(folder / "run").get("target_tokens", 0)
            for _ in setup.pairs:
                Paced.allowed.release()
                Paced.reached.acquire()
            return float(newest(folder / "run")["target_tokens"] - before)

        def waiting() -> float:
            return float(newest(folder / "run").get("waiting", 0.0))

        return System(f"{nmt_cli.__version__}, torch {torch.__version__}", one_pass, waiting=waiting)

    try:
        serve(build, ("float32", "bfloat16"))
    finally:
        Paced.ended = True
        Paced.allowed.release()
        setups.put(None)


def train(setup: Setup, folder: Path) -> None:
    """Train without end on the setup's sentences."""
    pairs = [pair for batch in setup.pairs for pair in zip(*batch, strict=True)]
    write_corpus(folder / "data", COPIES * pairs, setup.vocabulary)
    flags = {
        **model_flags(setup),
        **NOTHING_ELSE,
        "dropout": DROPOUT,
        "label_smoothing": SMOOTHING,
        "schedule": "paced",
        "precision": setup.dtype,
        "batch_tokens": setup.tokens,
        "max_steps": ENDLESS,
        "log_every": 1,
        "device": "cpu",
    }
    run(TrainOptions(data=(str(folder / "data"),), out=folder / "run"), flags)


def newest(out: Path) -> dict[str, Any]:
    """Return the last line of metrics, nothing at the start."""
    path = out / METRICS
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return dict(json.loads(lines[-1])) if lines else {}


def main() -> None:
    os.environ.pop("WORLD_SIZE", None)
    setups: queue.Queue[Setup | None] = queue.Queue()
    with tempfile.TemporaryDirectory() as folder:
        threading.Thread(target=answer, args=(Path(folder), setups), daemon=True).start()
        if setup := setups.get():
            train(setup, Path(folder))


if __name__ == "__main__":
    main()
