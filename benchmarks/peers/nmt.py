"""nmt through its own code: a translator of lines, loaded as `nmt translate` loads it."""

from __future__ import annotations

import weakref
from contextlib import ExitStack

import torch

import nmt_cli
from benchmarks.peers.serve import Ids, Setup, System, serve
from benchmarks.synthetic import line


def build(setup: Setup) -> System:
    length = setup.steps - 1
    translator = nmt_cli.load(
        setup.checkpoint,
        "cpu",
        setup.dtype,
        beam=setup.beam,
        alpha=setup.alpha,
        min_length=length,
        max_length=length,
    )
    processes = ExitStack()
    workers = processes.enter_context(translator.engine.workers(translator, setup.cores))

    def translate(sources: Ids) -> Ids:
        results = translator.translate_window([line(row) for row in sources], workers=workers)
        return [list(result.outputs[0].ids) for result in results]

    # Not by atexit, which Python 3.13 clears in each worker.
    weakref.finalize(translate, processes.close)
    return System(f"{nmt_cli.__version__}, torch {torch.__version__}", translate)


if __name__ == "__main__":
    serve(build, ("float32", "bfloat16", "int8"))
