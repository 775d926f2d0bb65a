"""Speed of translation beside other programs that translate with the same weights.

    python -m benchmarks.translation [--python huggingface=/path/to/python ...] [--out DIRECTORY]

A program is measured with the interpreter that --python gives, this one by default, and left out if it is not installed
there. All sources have 18 to 30 words and all outputs 30 tokens.
"""

from __future__ import annotations

import argparse
import operator
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks import figures, report
from benchmarks.samples import Sample, Spread, append, ratio, speed
from benchmarks.synthetic import ALPHA, SIZES, random_sources, save_model
from benchmarks.workers import Worker, WorkerError, add_interpreters, interpreters, started, take_turns, translations
from nmt_cli.errors import counted

PEERS = ("nmt", "ctranslate2", "huggingface", "fairseq")
SYSTEMS = (
    *("nmt:float32", "nmt:bfloat16", "nmt:int8", "ctranslate2:float32", "ctranslate2:int8"),
    *("huggingface:float32", "fairseq:float32"),
)
STEPS = 30
SOURCES = (128, 18, 30)
"""Number of sources, words of the shortest and of the longest."""
COMPARED = 16
"""Sources whose outputs are compared."""
METHOD = f"""
Random weights, the same in all systems; {SOURCES[0]} sources of {SOURCES[1]} to {SOURCES[2]} random words; every output
has {STEPS} tokens; alpha {ALPHA}. The systems wait in processes of their own and take turns, a sample each, so that a
disturbance of the machine meets all of them. Figures are medians over the rounds with the quartiles in brackets; a
ratio is taken within a round. In greedy search the systems' outputs are compared, the last token excepted; a model with
random weights is never sure, so rounding changes more of them than those of a trained model.
"""


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the command line's options."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.translation",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add_interpreters(parser, SYSTEMS)
    add("--models", nargs="+", choices=SIZES, default=list(SIZES))
    add("--beams", nargs="+", type=report.positive, default=[4, 1], metavar="N")
    add("--batches", nargs="+", type=report.positive, default=[1, 32, 64], metavar="N", help="sentences in a call")
    report.add_speed_options(parser, rounds=7, seconds=2.0)
    options = parser.parse_args(words)
    options.pythons = interpreters(parser, options, PEERS)
    return options


@dataclass(frozen=True)
class Measured:
    """What was measured of a model and a beam."""

    samples: list[Sample]
    versions: dict[str, str]  # by peer
    absent: dict[str, str]  # by system: the reason why it was not measured
    agreement: dict[str, int]  # by system: outputs that are those of the first system, of `COMPARED`


def measure(options: argparse.Namespace, model: str, beam: int, path: Path) -> Measured:
    """Return the samples of every system that starts; they are also appended to the file `path`.

    Raises:
        WorkerError: a system fails after it has started.
    """
    size = SIZES[model]
    sources = random_sources(*SOURCES, size.vocabulary)
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = save_model(Path(folder) / "model", size)
        setup = {"checkpoint": str(checkpoint), **asdict(size), "cores": options.cores, "beam": beam}
        with started(options.systems, options.pythons, {**setup, "alpha": ALPHA, "steps": STEPS}) as (workers, absent):
            samples = []
            for batch in options.batches:
                case = {"model": model, "beam": beam, "batch": batch}
                request = translations(sources, batch, options.seconds)
                for sample in take_turns(workers, case, options.rounds, request):
                    print(f"{case}, round {sample.round}: {sample.system} {sample.rate:.3g}", file=sys.stderr)
                    append(path, sample)
                    samples.append(sample)
            versions = {worker.system.peer: worker.version for worker in workers}
            return Measured(samples, versions, absent, agreement(workers, sources[:COMPARED]))


def agreement(workers: Sequence[Worker], sources: list[list[int]]) -> dict[str, int]:
    """Return how many outputs of each system are those of the first; ends of sentences are not compared."""
    outputs = {worker.system.name: [row[: STEPS - 1] for row in worker.translate(sources)] for worker in workers}
    first = next(iter(outputs.values()), [])
    return {name: sum(map(operator.eq, rows, first)) for name, rows in outputs.items()}


def speeds(measured: Measured, cases: Sequence[Mapping[str, Any]]) -> dict[str, list[Spread]]:
    """Return the sentences a second of each system in each case."""
    return {system: [speed(measured.samples, case, system) for case in cases] for system in measured.agreement}


def panels(measured: Measured, model: str, beam: int, batches: Sequence[int]) -> dict[str, dict[str, Spread]]:
    """Return the speeds of each system by the title of a panel for each batch size."""
    found = {batch: speeds(measured, [{"model": model, "beam": beam, "batch": batch}]) for batch in batches}
    return {
        f"{counted(batch, 'sentence')} a call": {system: value for system, (value,) in values.items()}
        for batch, values in found.items()
    }


def section(measured: Measured, model: str, beam: int, batches: Sequence[int]) -> Iterator[str]:
    """Yield the title and the tables of a model and a beam."""
    cases = [{"model": model, "beam": beam, "batch": batch} for batch in batches]
    head = [counted(batch, "sentence") for batch in batches]
    yield f"### {model}, beam {beam}"
    yield "Sentences a second, by the number of sentences in a call:"
    yield report.table(
        ["", *head], [[system, *map(report.shown, values)] for system, values in speeds(measured, cases).items()]
    )
    if beam == 1:
        same = (f"{system} {count}" for system, count in measured.agreement.items())
        yield report.paragraph(f"Outputs equal to those of the first system, of {COMPARED}: {', '.join(same)}.")
    ours = [system for system in measured.agreement if system.startswith("nmt ")]
    pairs = [(mine, peer) for mine in ours for peer in measured.agreement if peer not in ours]
    if pairs:
        yield "Ratio of the speeds:"
        yield report.table(
            ["", *head],
            [
                [f"{mine} / {peer}", *(report.shown(ratio(measured.samples, case, mine, peer)) for case in cases)]
                for mine, peer in pairs
            ],
        )
    if measured.absent:
        yield report.paragraph(f"Not measured: {'; '.join(measured.absent.values())}.")


def main() -> None:
    options = arguments()
    path = report.begin(options, "translation")
    result = report.Report("translation", METHOD)
    for model in options.models:
        for beam in options.beams:
            try:
                measured = measure(options, model, beam, path)
            except WorkerError as error:
                raise SystemExit(f"error: {error}") from error
            result.versions |= measured.versions
            result.add(*section(measured, model, beam, options.batches))
            result.add_figure(
                f"translation-{model}-{beam}",
                f"Sentences a second of the model {model} with a beam of {beam}",
                figures.bars(panels(measured, model, beam, options.batches), "sentences/s"),
            )
    result.write(options.out)
    print(options.out / "translation.md")


if __name__ == "__main__":
    main()
