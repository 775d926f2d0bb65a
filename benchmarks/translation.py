"""Speed of translation beside other programs that translate with the same weights.

    python -m benchmarks.translation [--python huggingface=/path/to/python ...] [--out DIRECTORY]

A program is measured with the interpreter that --python gives, this one by default, and left out if
it is not installed there. All sources have 18 to 30 words and all outputs 30 tokens. A checkpoint
with --checkpoint and a text with --input add nmt and CTranslate2 on real text.
"""

from __future__ import annotations

import argparse
import operator
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks import real_text, report
from benchmarks.samples import speed
from benchmarks.synthetic import ALPHA, MEAN_LENGTHS, SIZES, random_sources, save_model
from benchmarks.workers import (
    TRAINING_PEERS,
    Worker,
    WorkerError,
    interpreters,
    peaks,
    products_of,
    speed_parser,
    started,
    take_turns,
)
from nmt_cli.errors import counted

PACKAGE = "benchmarks.peers"
PEERS = ("nmt", "ctranslate2", "marian", "huggingface", "fairseq")
SYSTEMS = (
    "nmt:float32 nmt:bfloat16 nmt:int8 ctranslate2:float32 ctranslate2:int8 marian:float32 "
    "marian:int8 "
    "huggingface:float32 fairseq:float32"
)
SOURCES = 128
SHORTEST, LONGEST = 0.72, 1.2
"""Words of a source, as shares of the mean length. Outputs are as long as the longest source."""
PRODUCTS: dict[str, Any] = {"tokens": 2048, "pairs": []}
"""Rows of the products for the peak."""
COMPARED = 16
"""Sources with outputs that are compared."""
METHOD = f"""
Random weights, the same in all systems. {SOURCES} sources of 18 to 30 random words, or 7 to 12
characters. Every output has as many tokens as the longest source. Alpha {ALPHA}. The systems wait
in processes of their own and take turns, a sample each, so that a disturbance of the machine meets
all of them. Figures are medians over the rounds with the quartiles in brackets. A ratio is taken
within a round. In greedy search the systems' outputs are compared, the last token excepted. A model
with random weights is never sure, so rounding changes more of them than of a trained model.
Marian's sinusoids have other wavelengths, so some of its outputs are different. All systems
translate the parts of a call in processes or workers of one thread each. The peak is the fastest
matrix product of this machine at 2,048 rows, with all cores.
"""


def arguments() -> argparse.Namespace:
    """Return the command line's options."""
    parser = speed_parser("translation", __doc__, SYSTEMS, rounds=7, seconds=2.0)
    add = parser.add_argument
    add("--models", nargs="*", choices=SIZES, default=["base", "small"])
    add("--beams", nargs="+", type=report.positive, default=[4, 1], metavar="N")
    add(
        "--batches",
        nargs="+",
        type=report.positive,
        default=[1, 32, 64],
        metavar="N",
        help="sentences in a call",
    )
    add("--checkpoint", type=Path, metavar="DIRECTORY", help="a trained model for --input")
    add("--input", type=Path, metavar="FILE", help="real text")
    options = parser.parse_args()
    if (options.checkpoint is None) != (options.input is None):
        parser.error("--checkpoint and --input go together")
    options.pythons = interpreters(parser, options, PEERS)
    return options


def section(
    options: argparse.Namespace, model: str, beam: int, versions: dict[str, None]
) -> Iterator[str]:
    """Measure every system that starts.

    Yield the title and the tables of a model and a beam, and note the versions.

    Raises:
        WorkerError: a system fails after it has started.
    """
    size = SIZES[model]
    shortest, steps = (round(share * MEAN_LENGTHS[model]) for share in (SHORTEST, LONGEST))
    sources = random_sources(SOURCES, shortest, steps, size.vocabulary)
    cases = {
        counted(batch, "sentence"): {"model": model, "beam": beam, "batch": batch}
        for batch in options.batches
    }
    samples = []
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = save_model(Path(folder) / "model", size)
        setup = {
            "checkpoint": str(checkpoint),
            **asdict(size),
            "cores": options.cores,
            "beam": beam,
        }
        setup |= {"alpha": ALPHA, "steps": steps}
        with started(options.systems, options.pythons, setup, PACKAGE) as (workers, absent):
            for case in cases.values():
                request = translations(sources, case["batch"], options.seconds)
                samples += take_turns(workers, case, options.rounds, request)
            equal = agreement(workers, sources[:COMPARED], steps)
        products = products_of(options.systems)
        setup = {**asdict(size), "cores": options.cores, **PRODUCTS}
        with started(products, options.pythons, setup, TRAINING_PEERS) as (machines, _):
            peak = {"model": model}
            samples += take_turns(
                machines, peak, options.rounds, lambda _: {"seconds": options.seconds}
            )
    versions |= {f"{worker.system.peer} {worker.version}": None for worker in workers}
    rows = [
        [name, *(report.shown(speed(samples, case, name)) for case in cases.values())]
        for name in equal
    ]
    yield f"### {model}, beam {beam}"
    yield "Sentences a second, by the number of sentences in a call:"
    yield report.table(["", *cases], rows)
    if beam == 1:
        same = ", ".join(f"{system} {count}" for system, count in equal.items())
        yield report.paragraph(
            f"Outputs equal to those of the first system, of {COMPARED}: {same}."
        )
    yield report.paragraph(peaks(samples, peak, products))
    yield from report.ratios(samples, cases, list(equal))
    if absent:
        yield report.paragraph(f"Not measured: {'; '.join(absent)}.")


def translations(
    sources: Sequence[Any], batch: int, seconds: float
) -> Callable[[int], Mapping[str, Any]]:
    """Return the requests of rounds of at least `seconds`, which begin at different sources."""

    def request(number: int) -> Mapping[str, Any]:
        first = number * batch % len(sources)
        return {"sources": [*sources[first:], *sources[:first]], "batch": batch, "seconds": seconds}

    return request


def agreement(workers: Sequence[Worker], sources: list[list[int]], steps: int) -> dict[str, int]:
    """Return how many outputs of each system equal the first system's.

    Ends of sentences are not compared.
    """
    outputs = {}
    for worker in workers:
        outputs[worker.system.name] = [
            row[: steps - 1] for row in worker.ask({"translate": sources})["outputs"]
        ]
    first = next(iter(outputs.values()), [])
    return {name: sum(map(operator.eq, rows, first)) for name, rows in outputs.items()}


def main() -> None:
    options = arguments()
    versions: dict[str, None] = {}
    cases = [(model, beam) for model in options.models for beam in options.beams]
    try:
        parts = [text for model, beam in cases for text in section(options, model, beam, versions)]
    except WorkerError as error:
        raise SystemExit(f"error: {error}") from error
    if options.input is not None:
        parts += real_text.section(options, versions)
    report.publish(options.out, "translation", options.rounds, METHOD, parts, versions)


if __name__ == "__main__":
    main()
