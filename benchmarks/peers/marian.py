"""Marian: the program itself, from its Python package `pymarian`."""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pymarian

from benchmarks.peers.serve import Ids, Setup, Size, System, serve, word
from benchmarks.peers.weights import marian_arrays, read

SPECIAL = ("<pad>", "<unk>", "<s>", "</s>")
EOS = SPECIAL.index("</s>")
WIDEST = "avx512" if " avx512bw " in Path("/proc/cpuinfo").read_text(encoding="utf-8") else "avx2"
GEMM = {"float32": "float32", "int8": f"packed8{WIDEST}"}
"""Kinds of products. The other kinds in 8 bits, intgemm8 and intgemm8avx512, were no faster."""
NEVER = -1e9
"""A bias with which a symbol is not chosen."""


def build(setup: Setup) -> System:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        vocabulary = write_vocabulary(folder, setup.vocabulary)
        model = folder / "model.npz"
        write_model(folder, setup, vocabulary)
        if setup.dtype != "float32":
            model = folder / "model.bin"
            run(
                "convert",
                {"from": folder / "model.npz", "to": model, "gemm-type": GEMM[setup.dtype]},
            )
        flags = {
            "models": model,
            "vocabs": [vocabulary] * 2,
            "beam_size": setup.beam,
            "normalize": setup.alpha,
        }
        translator = pymarian.Translator(
            **flags, mini_batch=1000, cpu_threads=setup.cores, quiet=""
        )

    def translate(sources: Ids) -> Ids:
        # No output ends by itself, and the factor is for the longest source, with its end.
        factor = (setup.steps - 0.5) / (max(map(len, sources)) + 1)
        lines = [" ".join(map(word, source)) for source in sources]
        return [
            list(map(int, line.split()))
            for line in translator.translate(lines, **{"max-length-factor": factor})
        ]

    return System(importlib.metadata.version("pymarian"), translate)


def write_vocabulary(folder: Path, size: int) -> Path:
    """Write the vocabulary with nmt's ids. Return its path."""
    path = folder / "vocabulary.yml"
    words = [*SPECIAL, *map(word, range(len(SPECIAL), size))]
    path.write_text(
        "".join(f'"{entry}": {number}\n' for number, entry in enumerate(words)), encoding="utf-8"
    )
    return path


def run(command: str, flags: Mapping[str, Any]) -> None:
    """Run a command of Marian."""
    subprocess.run([*marian(command, flags)], check=True)


def marian(command: str, flags: Mapping[str, Any]) -> list[str]:
    """Return the command line of a command of Marian."""
    return [
        sys.executable,
        "-m",
        "pymarian",
        command,
        *pymarian.utils.kwargs_to_cli(**flags).split(" "),
    ]


def model_flags(size: Size, vocabulary: Path) -> dict[str, Any]:
    """Return the options for the paper's model of this size, with one matrix for all embeddings."""
    return {
        "type": "transformer",
        "tied-embeddings-all": "",
        "vocabs": [vocabulary] * 2,
        "dim-vocabs": [size.vocabulary] * 2,
        "dim-emb": size.width,
        "enc-depth": size.layers,
        "dec-depth": size.layers,
        "transformer-heads": size.heads,
        "transformer-dim-ffn": size.inner,
        "transformer-ffn-activation": "relu",
    }


def write_model(folder: Path, setup: Setup, vocabulary: Path) -> None:
    """Write model.npz with nmt's weights: Marian makes a model, and its arrays are replaced."""
    text, model = folder / "line", folder / "model.npz"
    text.write_text(f"{word(len(SPECIAL))}\n", encoding="utf-8")
    data = {
        "train-sets": [text] * 2,
        "model": model,
        "after-batches": 1,
        "cpu-threads": 1,
        "tempdir": folder,
    }
    run("train", {**model_flags(setup, vocabulary), **data})
    arrays = dict(np.load(model))
    arrays |= {
        name: np.ascontiguousarray(array).reshape(arrays[name].shape)
        for name, array in marian_arrays(read(setup.checkpoint))
    }
    arrays |= {
        name: np.zeros_like(arrays[name])
        for name in arrays
        if re.search("_(self|context)_b.$", name)
    }
    arrays["decoder_ff_logit_out_b"] = np.zeros_like(arrays["decoder_ff_logit_out_b"])
    arrays["decoder_ff_logit_out_b"][0, EOS] = NEVER
    np.savez(model, **arrays)


if __name__ == "__main__":
    serve(build, tuple(GEMM), divided=True)
