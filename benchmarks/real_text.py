"""Speed of a trained model on text, whose outputs end at different lengths, beside CTranslate2.

The systems are loaded in this process, and compute with one thread.
"""

from __future__ import annotations

import argparse
import operator
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import ctranslate2
import torch

import nmt_cli
from benchmarks import report
from benchmarks.samples import Sample, speed
from benchmarks.synthetic import ALPHA
from nmt_cli.annexes.exchange.ctranslate2.engine import tokens_of
from nmt_cli.annexes.exchange.ctranslate2.writing import write
from nmt_cli.errors import counted
from nmt_cli.files.text import read_lines
from nmt_cli.weights import load_model

Translate = Callable[[Sequence[str]], list[str]]
CALLS = 64
"""Calls of a sample, at most. Their lines are taken from the whole text."""
LARGEST = 32
"""Sentences of a batch of CTranslate2, which is fastest with so many."""
MORE_TOKENS = 50
"""How many tokens an output may have more than its source, in nmt."""
METHOD = f"""
Outputs of a trained model on real text, each of its own length, as a user meets them. Both programs
compute with one thread of this process and the same weights. A sample is the whole text or {CALLS}
calls. Speeds are medians over the rounds with the quartiles in brackets. The texts are encoded and
decoded by the same code, inside the time. CTranslate2 divides a score by length^{ALPHA}, and nmt by
((5 + length) / 6)^{ALPHA}, so a few outputs are different.
"""


def own(checkpoint: Path, dtype: str, beam: int) -> Translate:
    """Return nmt's function."""
    return nmt_cli.load(checkpoint, "cpu", dtype, beam=beam, alpha=ALPHA).translate


def peer(checkpoint: Path, dtype: str, beam: int) -> Translate:
    """Return a function of CTranslate2, called as its documentation says."""
    model, task = load_model(checkpoint)
    with tempfile.TemporaryDirectory() as folder:
        write(model, task, Path(folder))
        translator = ctranslate2.Translator(
            folder, compute_type=dtype, inter_threads=1, intra_threads=1
        )
    source_tokens, target_tokens = tokens_of(task)
    target_ids = {token: number for number, token in enumerate(target_tokens)}

    def translate(lines: Sequence[str]) -> list[str]:
        sources = [[source_tokens[i] for i in task.encode_source(line)] for line in lines]
        results = translator.translate_batch(
            sources,
            beam_size=beam,
            length_penalty=ALPHA,
            max_batch_size=LARGEST,
            max_decoding_length=max(map(len, sources)) + MORE_TOKENS,
        )
        texts = []
        for result, line in zip(results, lines, strict=True):
            ids = [target_ids[token] for token in result.hypotheses[0]]
            texts.append(task.decode_target(ids, line))
        return texts

    return translate


LOAD = {"nmt": own, "ctranslate2": peer}


def calls(lines: Sequence[str], batch: int) -> list[Sequence[str]]:
    """Divide the text into at most `CALLS` calls of `batch` lines, from all of it."""
    step = max(1, len(lines) // (CALLS * batch))
    chosen = lines[::step][: CALLS * batch]
    return [chosen[first : first + batch] for first in range(0, len(chosen), batch)]


def section(options: argparse.Namespace, versions: dict[str, None]) -> Iterator[str]:
    """Measure the systems on the text.

    Yield the method, and the title and the tables of each beam, and note the versions.
    """
    yield "### Real text"
    yield report.paragraph(METHOD)
    versions[f"ctranslate2 {ctranslate2.__version__}"] = None
    torch.set_num_threads(1)
    lines = [line for line in read_lines(options.input) if line.strip()]
    batches = {counted(batch, "sentence"): batch for batch in (*options.batches, len(lines))}
    cases: dict[str, dict[str, Any]] = {name: {"batch": name} for name in batches}
    whole = counted(len(lines), "sentence")
    cases[f"{whole}, by the clock"] = {"batch": whole, "clock": True}
    systems = [system for system in options.systems if system.peer in LOAD]
    for beam in options.beams:
        functions = {s.name: LOAD[s.peer](options.checkpoint, s.dtype, beam) for s in systems}
        outputs = {name: translate(lines) for name, translate in functions.items()}
        samples = list[Sample]()
        for number in range(options.rounds):
            for name, translate in functions.items():
                for column, batch in batches.items():
                    began, processor = time.perf_counter(), time.process_time()
                    amount = sum(len(translate(part)) for part in calls(lines, batch))
                    seconds = time.process_time() - processor
                    samples.append(Sample(cases[column], name, number, amount, seconds))
                clock = {**cases[column], "clock": True}
                samples.append(Sample(clock, name, number, amount, time.perf_counter() - began))
        rows = [
            [name, *(report.shown(speed(samples, case, name)) for case in cases.values())]
            for name in functions
        ]
        yield f"{options.input.name}, beam {beam}: sentences in a second of processor time."
        yield report.table(["", *cases], rows)
        yield from report.ratios(samples, cases, functions)
        first = next(iter(outputs.values()))
        equal = {name: sum(map(operator.eq, texts, first)) for name, texts in outputs.items()}
        same = ", ".join(f"{name} {count:,}" for name, count in equal.items())
        yield report.paragraph(f"Outputs equal to the first system's: {same}.")
