"""nmt: the command `nmt train`."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

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
    system = system_of_command(f"{nmt_cli.__version__}, torch {torch.__version__}", setup, command, r" step ([\d,]+) ")

    def figure(name: str) -> float:
        return float(newest(folder / "run").get(name, 0.0))

    def one_pass() -> float:
        before = figure("target_tokens")
        system.one_pass()
        return figure("target_tokens") - before

    return system._replace(one_pass=one_pass, waiting=lambda: figure("waiting"))


def newest(out: Path) -> dict[str, Any]:
    """Return the last line of metrics, nothing at the start."""
    path = out / METRICS
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return dict(json.loads(lines[-1])) if lines else {}


if __name__ == "__main__":
    serve(build, ("float32", "bfloat16"))
