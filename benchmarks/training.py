"""Speed of training beside other programs that train the same model on the same sentences.

    python -m benchmarks.training [--python fairseq=/path/to/python ...] [--out DIRECTORY]

A program is measured with the interpreter that --python gives, this one by default, and left out if it is not installed
there.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks import figures, report
from benchmarks.samples import Sample, Spread, append, rates, ratio, speed, spread
from benchmarks.synthetic import SIZES, batches, flops_of_token, random_pairs
from benchmarks.workers import System, WorkerError, add_interpreters, interpreters, started, take_turns

PACKAGE = "benchmarks.peers.training"
PEERS = ("nmt", "fairseq", "sockeye", "huggingface", "torch")
SYSTEMS = (
    *("nmt:float32", "nmt:bfloat16", "fairseq:float32", "sockeye:float32"),
    *("huggingface:float32", "huggingface:bfloat16", "torch:float32", "torch:bfloat16"),
)
PRODUCTS = "products"
"""The peer that computes matrix products only."""
CORPUS = 4000
"""Sentence pairs from which the batches are drawn."""
METHOD = """
A pass makes an update with each of the same batches, drawn from random sentences of about 25 words: forward pass,
label smoothing of 0.1, backward pass, Adam; dropout 0.1. A batch has at most {tokens:,} source and {tokens:,} target
tokens of sentences of similar length; target tokens are counted without padding. The systems wait in processes of their
own and take turns, a sample of one pass or more each. Figures are medians over the rounds with the quartiles in
brackets; a ratio is taken within a round. The peak is the fastest matrix product of this machine in the same round, at
the model's shapes and in the same type; the share of it counts the products of the model without padding.
"""


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the command line's options."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.training", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_interpreters(parser, SYSTEMS)
    parser.add_argument("--models", nargs="+", choices=SIZES, default=list(SIZES))
    parser.add_argument("--tokens", type=report.positive, default=2048, metavar="N", help="of a batch; default: 2048")
    parser.add_argument("--batches", type=report.positive, default=4, metavar="N", help="of a pass; default: 4")
    report.add_speed_options(parser, rounds=5, seconds=5.0)
    options = parser.parse_args(words)
    options.pythons = {**interpreters(parser, options, PEERS), PRODUCTS: sys.executable}
    return options


@dataclass(frozen=True)
class Measured:
    """What was measured of a model."""

    case: Mapping[str, Any]
    samples: list[Sample]
    versions: dict[str, str]  # by peer
    absent: dict[str, str]  # by system: the reason why it was not measured
    figures: dict[str, dict[str, Any]]  # by system: padding, waiting, memory
    flops: float  # of a target token

    def share(self, system: str) -> Spread | None:
        """Return the share of the peak that `system` reaches."""
        found = ratio(self.samples, self.case, system, f"{PRODUCTS} {system.split()[1]}")
        return found and Spread(*(value * self.flops for value in found))


def measure(options: argparse.Namespace, model: str, path: Path) -> Measured:
    """Return the samples of every system that starts; they are also appended to the file `path`.

    Raises:
        WorkerError: a system fails after it has started.
    """
    size = SIZES[model]
    pairs = batches(random_pairs(CORPUS, size.vocabulary), options.tokens, options.batches)
    systems = [
        *options.systems,
        *(System(PRODUCTS, dtype) for dtype in dict.fromkeys(s.dtype for s in options.systems)),
    ]
    setup = {**asdict(size), "cores": options.cores, "tokens": options.tokens, "pairs": pairs}
    case = {"model": model, "tokens": options.tokens}
    with started(systems, options.pythons, setup, PACKAGE) as (workers, absent):
        samples = []
        for sample in take_turns(workers, case, options.rounds, lambda _: {"seconds": options.seconds}):
            print(f"{case}, round {sample.round}: {sample.system} {sample.rate:.3g}", file=sys.stderr)
            append(path, sample)
            samples.append(sample)
        return Measured(
            case,
            samples,
            {worker.system.peer: worker.version for worker in workers if worker.system.peer != PRODUCTS},
            absent,
            {worker.system.name: worker.figures for worker in workers if worker.system.peer != PRODUCTS},
            flops_of_token(size, [pair for batch in pairs for pair in zip(*batch, strict=True)]),
        )


def speeds(measured: Measured) -> dict[str, Spread]:
    """Return the target tokens a second of each system."""
    return {system: speed(measured.samples, measured.case, system) for system in measured.figures}


def section(measured: Measured, model: str) -> Iterator[str]:
    """Yield the title and the tables of a model."""
    yield f"### {model}, training"
    yield report.table(
        ["", "target tokens/s", "share of the peak", "padding", "waiting for data", "peak memory, GB"],
        [
            [system, report.shown(found), report.shown(measured.share(system)), *own(measured.figures[system])]
            for system, found in speeds(measured).items()
        ],
    )
    products = {name: rates(measured.samples, measured.case, name) for name in peaks(measured)}
    peak = (
        f"{name.split()[1]} {report.shown(spread([r / 1e9 for r in each.values()]))}" for name, each in products.items()
    )
    yield report.paragraph(
        f"A target token takes {measured.flops / 1e6:,.0f} MFLOP. Peak of the products in GFLOP/s: {', '.join(peak)}."
    )
    ours = [system for system in measured.figures if system.startswith("nmt ")]
    peers = [system for system in measured.figures if system not in ours]
    if ours and peers:
        yield "Ratio of the speeds:"
        yield report.table(
            ["", *ours],
            [
                [peer, *(report.shown(ratio(measured.samples, measured.case, mine, peer)) for mine in ours)]
                for peer in peers
            ],
        )
    if measured.absent:
        yield report.paragraph(f"Not measured: {'; '.join(measured.absent.values())}.")


def own(figures: Mapping[str, Any]) -> list[str]:
    """Return what a system reports of itself as cells: padding, waiting for data, memory."""
    shares = [f"{figures[name]:.1%}" if figures.get(name) is not None else "" for name in ("padding", "waiting")]
    return [*shares, f"{figures['memory'] / 1e9:.2f}"]


def peaks(measured: Measured) -> list[str]:
    """Return the names of the measured products."""
    return list(dict.fromkeys(sample.system for sample in measured.samples if sample.system.startswith(PRODUCTS)))


def main() -> None:
    options = arguments()
    path = report.begin(options, "training")
    result = report.Report("training", METHOD.format(tokens=options.tokens))
    panels = {}
    for model in options.models:
        try:
            measured = measure(options, model, path)
        except WorkerError as error:
            raise SystemExit(f"error: {error}") from error
        result.versions |= measured.versions
        result.add(*section(measured, model))
        panels[model] = speeds(measured)
    result.add_figure("training", "Target tokens a second in training", figures.bars(panels, "target tokens/s"))
    result.write(options.out)
    print(options.out / "training.md")


if __name__ == "__main__":
    main()
