"""CTranslate2 at its best: a worker of one thread for each core, with an equal part for each.

On a GPU, one worker has batches of 32,768 tokens.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import ctranslate2

from benchmarks.peers.serve import Ids, Setup, System, serve
from benchmarks.synthetic import FIRST, line
from nmt_cli.annexes.exchange.ctranslate2.writing import write
from nmt_cli.interfaces import SPECIAL_SYMBOLS
from nmt_cli.weights import load_model


def build(setup: Setup) -> System:
    words = [*SPECIAL_SYMBOLS, *(line([number]) for number in range(FIRST, setup.vocabulary))]
    numbers = {word: number for number, word in enumerate(words)}
    with tempfile.TemporaryDirectory() as folder:
        write(*load_model(Path(setup.checkpoint)), Path(folder))
        translator = ctranslate2.Translator(
            folder,
            device=setup.device,
            compute_type=setup.dtype,
            inter_threads=setup.cores,
            intra_threads=1,
        )

    def translate(sources: Ids) -> Ids:
        batches: dict[str, Any] = {"max_batch_size": -(-len(sources) // setup.cores)}
        if setup.device == "cuda":
            batches = {"max_batch_size": 32_768, "batch_type": "tokens"}
        results = translator.translate_batch(
            [[words[number] for number in source] for source in sources],
            beam_size=setup.beam,
            length_penalty=setup.alpha,
            min_decoding_length=setup.steps,
            max_decoding_length=setup.steps,
            **batches,
        )
        return [[numbers[word] for word in result.hypotheses[0]] for result in results]

    return System(ctranslate2.__version__, translate)


if __name__ == "__main__":
    serve(build, ("float32", "bfloat16", "float16", "int8"))
