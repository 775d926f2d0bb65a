"""Marian: its command `train`, with its own batches and log. Each thread computes a part of each batch."""

from __future__ import annotations

import importlib.metadata
import tempfile
from pathlib import Path

from benchmarks.peers.marian import marian, model_flags, write_vocabulary
from benchmarks.peers.training.command import system_of_command, write_text
from benchmarks.peers.training.serve import ADAM, DROPOUT, SMOOTHING, Setup, System, serve


def build(setup: Setup) -> System:
    folder = Path(tempfile.mkdtemp())
    text = [folder / "source", folder / "target"]
    write_text(setup, text)
    flags = {
        **model_flags(setup, write_vocabulary(folder, setup.vocabulary)),
        "train-sets": text,
        "model": folder / "model.npz",
        "max-length": 1000,
        "mini-batch-words": setup.tokens,
        "mini-batch-round-up": False,
        "transformer-dropout": DROPOUT,
        "label-smoothing": SMOOTHING,
        "learn-rate": ADAM["lr"],
        "optimizer-params": [*ADAM["betas"], ADAM["eps"]],
        "clip-norm": 0,
        "cpu-threads": setup.cores,
        "sync-sgd": "",
        "disp-freq": 1,
        "tempdir": folder,
    }
    return system_of_command(importlib.metadata.version("pymarian"), setup, marian("train", flags), r" \* ([\d,]+) @")


if __name__ == "__main__":
    serve(build, ("float32",))
