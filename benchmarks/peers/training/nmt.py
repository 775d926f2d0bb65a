"""nmt: the command `nmt train`."""

from __future__ import annotations

import atexit
import itertools
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Container, Sequence
from pathlib import Path

import torch

import nmt_cli
from benchmarks.peers.training.command import COPIES, system_of_command
from benchmarks.peers.training.serve import DROPOUT, SMOOTHING, Setup, System, serve
from benchmarks.synthetic import ENDLESS, NOTHING_ELSE, flag_words, model_flags, write_corpus
from nmt_cli.training.run_directory import METRICS


def build(setup: Setup) -> System:
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    pairs = [pair for batch in setup.pairs for pair in zip(*batch, strict=True)]
    write_corpus(folder / "data", COPIES * pairs, setup.vocabulary)
    flags = {
        **model_flags(setup),
        **NOTHING_ELSE,
        "dropout": DROPOUT,
        "label_smoothing": SMOOTHING,
        "precision": setup.dtype,
        "batch_tokens": setup.tokens,
        "max_steps": ENDLESS,
        "log_every": 1,
        "device": "cpu",
        "out": folder / "run",
    }
    os.environ.pop("WORLD_SIZE", None)
    command = [sys.executable, "-m", "nmt_cli", "train", str(folder / "data"), *flag_words(flags)]
    system = system_of_command(
        f"{nmt_cli.__version__}, torch {torch.__version__}", setup, command, r" step ([\d,]+) "
    )

    interrupted = set[int]()  # updates during which the process was stopped

    def one_pass() -> float:
        before = logged(folder / "run", "target_tokens")
        interrupted.add(len(before))
        system.one_pass()
        return logged(folder / "run", "target_tokens")[-1] - sum(before[-1:])

    return system._replace(
        one_pass=one_pass, waiting=lambda: waited(logged(folder / "run", "waiting"), interrupted)
    )


def logged(out: Path, name: str) -> list[float]:
    """Return a figure of all lines of metrics, none at the start."""
    path = out / METRICS
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [float(json.loads(line)[name]) for line in lines]


def waited(totals: Sequence[float], interrupted: Container[int]) -> float:
    """Return the seconds of waiting, given the sum after each update.

    The wait of an interrupted one has the pause.
    """
    waits = (after - before for before, after in itertools.pairwise([0.0, *totals]))
    return sum(wait for update, wait in enumerate(waits) if update not in interrupted)


if __name__ == "__main__":
    serve(build, ("float32", "bfloat16"))
