"""Growth of nmt's time for a sentence with the beam, the sentence's length, the batch and the vocabulary.

    python -m benchmarks.growth [--out DIRECTORY]

From the small model, a beam of 4, sentences and outputs of 30 tokens, 32 sentences in a call and a vocabulary of 8,000,
one of these changes at a time.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import figures, report
from benchmarks.samples import Sample, Spread, append, rates, spread
from benchmarks.synthetic import ALPHA, SIZES, random_sources, save_model
from benchmarks.workers import System, WorkerError, started, take_turns, translations


@dataclass(frozen=True)
class Point:
    """A case; one of its values changes along a curve."""

    beam: int = 4
    length: int = 30  # tokens of a source and of an output, the end of the sentence included
    batch: int = 32
    vocabulary: int = 8_000


CURVES: dict[str, Sequence[int]] = {
    "beam": (1, 2, 4, 8, 16),
    "length": (10, 20, 40, 80, 160, 320),
    "batch": (1, 2, 4, 8, 16, 32, 64, 128),
    "vocabulary": (4_000, 8_000, 16_000, 32_000, 64_000),
}
TITLES = {
    "beam": "beam",
    "length": "tokens of a sentence",
    "batch": "sentences in a call",
    "vocabulary": "entries of the vocabulary",
}
METHOD = """
The small model (3 + 3 layers, width 256), random weights. Time for a sentence: medians over the rounds, with the
quartiles in brackets. Unless it changes: beam 4, sentences and outputs of 30 tokens, 32 sentences in a call, a
vocabulary of 8,000. In the figure a dotted line is growth in proportion.
"""


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the command line's options."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.growth", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dtypes", nargs="+", default=["float32", "int8"], metavar="DTYPE")
    parser.add_argument("--curves", nargs="+", choices=CURVES, default=list(CURVES))
    report.add_speed_options(parser, rounds=5, seconds=1.0)
    return parser.parse_args(words)


def measure(options: argparse.Namespace, point: Point) -> list[Sample]:
    """Return the samples of a point, those of each type of arithmetic in turn.

    Raises:
        WorkerError: a translation fails.
    """
    size = dataclasses.replace(SIZES["small"], vocabulary=point.vocabulary)
    words = point.length - 1
    sources = random_sources(2 * point.batch, words, words, point.vocabulary)
    systems = [System("nmt", dtype) for dtype in options.dtypes]
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = save_model(Path(folder) / "model", size)
        setup = {"checkpoint": str(checkpoint), **dataclasses.asdict(size), "cores": options.cores, "alpha": ALPHA}
        setup |= {"beam": point.beam, "steps": point.length}
        with started(systems, {"nmt": sys.executable}, setup) as (workers, absent):
            if absent:
                raise WorkerError(next(iter(absent.values())))
            case = dataclasses.asdict(point)
            request = translations(sources, point.batch, options.seconds)
            return list(take_turns(workers, case, options.rounds, request))


def times(samples: Sequence[Sample], point: Point, system: str) -> Spread:
    """Return the milliseconds of a sentence."""
    return spread([1000 / rate for rate in rates(samples, dataclasses.asdict(point), system).values()])


@dataclass(frozen=True)
class Study:
    """Curves of one figure."""

    name: str  # of the report
    about: str
    unit: str
    curves: Mapping[str, Sequence[int]]  # by the field of the point that changes, its values
    titles: Mapping[str, str]
    point: Any  # a dataclass
    measure: Callable[[argparse.Namespace, Any], list[Sample]]
    times: Callable[[Sequence[Sample], Any, str], Spread]  # of a point and a system

    def grow(self, options: argparse.Namespace, result: report.Report) -> None:
        """Measure all curves, draw them and write the report."""
        path = report.begin(options, self.name)
        panels: dict[str, dict[str, dict[int, Spread]]] = {}
        for name in options.curves:
            curves: dict[str, dict[int, Spread]] = {f"nmt {dtype}": {} for dtype in options.dtypes}
            for value in self.curves[name]:
                point = dataclasses.replace(self.point, **{name: value})
                try:
                    samples = self.measure(options, point)
                except WorkerError as error:
                    raise SystemExit(f"error: {error}") from error
                for sample in samples:
                    append(path, sample)
                for system, curve in curves.items():
                    curve[value] = self.times(samples, point, system)
                    print(f"{name} {value}: {system} {report.shown(curve[value])} ms", file=sys.stderr)
            panels[self.titles[name]] = curves
        result.add_figure(self.name, self.about, figures.curves(panels, self.unit))
        for title, curves in panels.items():
            rows = [
                [f"{value:,}", *(report.shown(curve[value]) for curve in curves.values())]
                for value in next(iter(curves.values()))
            ]
            result.add(report.table([title, *(f"{system}, ms" for system in curves)], rows))
        result.write(options.out, options.page)
        print(options.out / f"{self.name}.md")


TRANSLATION = Study("growth", "Time for a sentence", "ms for a sentence", CURVES, TITLES, Point(), measure, times)


def main() -> None:
    TRANSLATION.grow(arguments(), report.Report("growth", METHOD))


if __name__ == "__main__":
    main()
