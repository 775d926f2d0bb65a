"""Speed of training beside other programs that train the same model on the same sentences.

    python -m benchmarks.training [--python fairseq=/path/to/python ...] [--out DIRECTORY]

A program is measured with the interpreter that --python gives, this one by default, and left out if
it is not installed there.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from benchmarks import report
from benchmarks.samples import Spread, ratio, speed
from benchmarks.synthetic import MEAN_LENGTHS, SIZES, batches, flops_of_token, random_pairs
from benchmarks.workers import (
    PRODUCTS,
    TRAINING_PEERS,
    WorkerError,
    interpreters,
    peaks,
    products_of,
    speed_parser,
    started,
    take_turns,
)

PEERS = ("nmt", "fairseq", "marian", "huggingface", "torch")
SYSTEMS = (
    "nmt:float32 nmt:bfloat16 fairseq:float32 marian:float32 huggingface:float32 "
    "huggingface:bfloat16 torch:float32 torch:bfloat16"
)
CORPUS = 4000
"""Sentence pairs from which the batches are drawn."""
METHOD = """
A pass makes an update with each of the same batches, drawn from random sentences of about 25 words
(10 characters): forward pass, label smoothing of 0.1, backward pass, Adam, dropout of 0.1. A batch
has at most {tokens:,} source and {tokens:,} target tokens of sentences of similar length. Target
tokens are counted without padding. nmt, fairseq and marian are the programs' own commands, which
make their own batches of the same sentences. Each system waits in its own process, and they take
turns with samples of one pass or more. Figures are medians over the rounds with the quartiles in
brackets. A ratio is taken within a round. The peak is the fastest matrix product of this machine in
the same round, at the model's shapes and in the same type. The share of the peak counts the
products of the model without padding.
"""


def arguments() -> argparse.Namespace:
    """Return the command line's options."""
    parser = speed_parser("training", __doc__, SYSTEMS, rounds=5, seconds=5.0)
    parser.add_argument("--models", nargs="+", choices=SIZES, default=["base", "small"])
    parser.add_argument(
        "--tokens",
        type=report.positive,
        default=2048,
        metavar="N",
        help="of a batch; default: 2048",
    )
    parser.add_argument(
        "--batches", type=report.positive, default=4, metavar="N", help="of a pass; default: 4"
    )
    options = parser.parse_args()
    options.pythons = interpreters(parser, options, PEERS)
    return options


def section(options: argparse.Namespace, model: str, versions: dict[str, None]) -> Iterator[str]:
    """Measure every system that starts.

    Yield the title and the tables of a model, and note the versions.

    Raises:
        WorkerError: a system fails after it has started.
    """
    size = SIZES[model]
    pairs = batches(
        random_pairs(CORPUS, size.vocabulary, MEAN_LENGTHS[model]), options.tokens, options.batches
    )
    flops = flops_of_token(size, [pair for batch in pairs for pair in zip(*batch, strict=True)])
    products = products_of(options.systems)
    setup = {**asdict(size), "cores": options.cores, "tokens": options.tokens, "pairs": pairs}
    case = {"model": model, "tokens": options.tokens}
    with started([*options.systems, *products], options.pythons, setup, TRAINING_PEERS) as (
        workers,
        absent,
    ):
        samples = take_turns(workers, case, options.rounds, lambda _: {"seconds": options.seconds})
    systems = {
        worker.system: worker.figures for worker in workers if worker.system.peer != PRODUCTS
    }
    versions |= {
        f"{worker.system.peer} {worker.version}": None
        for worker in workers
        if worker.system in systems
    }
    rows = []
    for system, figures in systems.items():
        share = ratio(samples, case, system.name, f"{PRODUCTS} {system.dtype}")
        of_peak = share and Spread(*(value * flops for value in share))
        own_speed = speed(samples, case, system.name)
        rows.append([system.name, report.shown(own_speed), report.shown(of_peak), *own(figures)])
    yield f"### {model}, training"
    columns = [
        "target tokens/s",
        "share of the peak",
        "padding",
        "waiting for data",
        "peak memory, GB",
    ]
    yield report.table(["", *columns], rows)
    yield report.paragraph(
        f"A target token takes {flops / 1e6:,.0f} MFLOP. {peaks(samples, case, products)}"
    )
    yield from report.ratios(samples, {"ratio": case}, [system.name for system in systems])
    if absent:
        yield report.paragraph(f"Not measured: {'; '.join(absent)}.")


def own(figures: Mapping[str, Any]) -> list[str]:
    """Return what a system reports of itself as cells: padding, waiting for data, memory."""
    shares = [
        f"{figures[name]:.1%}" if figures.get(name) is not None else ""
        for name in ("padding", "waiting")
    ]
    return [*shares, f"{figures['memory'] / 1e9:.2f}"]


def main() -> None:
    options = arguments()
    versions: dict[str, None] = {}
    try:
        parts = [text for model in options.models for text in section(options, model, versions)]
    except WorkerError as error:
        raise SystemExit(f"error: {error}") from error
    report.publish(
        options.out,
        "training",
        options.rounds,
        METHOD.format(tokens=options.tokens),
        parts,
        versions,
    )


if __name__ == "__main__":
    main()
