"""fairseq: the command `fairseq-train --cpu`, with its own batches, loader and log."""

from __future__ import annotations

import sys

import fairseq
import torch

from benchmarks.peers.serve import word
from benchmarks.peers.training.command import system_of_command, text_folder
from benchmarks.peers.training.serve import ADAM, DROPOUT, SMOOTHING, Setup, System, serve


def build(setup: Setup) -> System:
    folder = text_folder(setup, [f"train.s-t.{side}" for side in "st"])
    dictionary = "".join(f"{word(number)} 1\n" for number in range(4, setup.vocabulary))
    for side in "st":
        (folder / f"dict.{side}.txt").write_text(dictionary, encoding="utf-8")
    command = [
        sys.executable,
        "-u",
        "-m",
        "fairseq_cli.train",
        str(folder),
        *"--source-lang s --target-lang t".split(),
    ]
    command += "--dataset-impl raw --disable-validation --no-save --cpu --arch transformer".split()
    command += f"--max-tokens {setup.tokens} --required-batch-size-multiple 1".split()
    command += f"--share-all-embeddings --dropout {DROPOUT}".split()
    for side in ("encoder", "decoder"):
        command += f"--{side}-layers {setup.layers} --{side}-attention-heads {setup.heads}".split()
        command += f"--{side}-embed-dim {setup.width} --{side}-ffn-embed-dim {setup.inner}".split()
    command += f"--criterion label_smoothed_cross_entropy --label-smoothing {SMOOTHING}".split()
    command += ["--optimizer", "adam", "--lr", str(ADAM["lr"]), "--adam-betas", str(ADAM["betas"])]
    command += ["--adam-eps", str(ADAM["eps"]), "--log-format", "json", "--log-interval", "1"]
    version = f"{fairseq.__version__}, torch {torch.__version__}"
    return system_of_command(version, setup, command, r'"wpb": "([\d.]+)"')


if __name__ == "__main__":
    serve(build, ("float32",))
