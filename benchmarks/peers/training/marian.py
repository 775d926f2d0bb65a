"""Marian: its command `train`, with its own batches, which are a little larger, and log.

Each of its threads computes a part of a batch. It has no other threads."""

from __future__ import annotations

import importlib.metadata

from benchmarks.peers.marian import marian, model_flags, write_vocabulary
from benchmarks.peers.training.command import system_of_command, text_folder
from benchmarks.peers.training.serve import ADAM, DROPOUT, SMOOTHING, Setup, System, serve


def build(setup: Setup) -> System:
    names = ("source", "target")
    folder = text_folder(setup, names)
    flags = {
        **model_flags(setup, write_vocabulary(folder, setup.vocabulary)),
        "train-sets": [folder / name for name in names],
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
    return system_of_command(
        importlib.metadata.version("pymarian"), setup, marian("train", flags), r" \* ([\d,]+) @"
    )


if __name__ == "__main__":
    serve(build, ("float32",))
