"""Curves of nmt's times: one value of a case changes at a time."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from benchmarks import figures, report
from benchmarks.samples import Sample, Spread, append
from benchmarks.workers import System, WorkerError, started, take_turns


class Curve(NamedTuple):
    """The values of a quantity."""

    title: str
    values: Sequence[int]


@dataclass(frozen=True)
class Study:
    """Curves of one figure."""

    name: str  # of the report
    about: str
    unit: str
    method: str
    curves: Mapping[str, Curve]  # by the field of the point that changes
    point: Any  # a dataclass
    measure: Callable[[argparse.Namespace, Any], list[Sample]]
    times: Callable[[Sequence[Sample], Any, str], Spread]  # of a point and a system

    def run(self, description: str | None, dtypes: Sequence[str], rounds: int, seconds: float) -> None:
        """Measure the curves that the command line asks for, draw them and write the report.

        Args:
            description: of the program.
            dtypes, rounds, seconds: defaults of the options.
        """
        parser = argparse.ArgumentParser(
            prog=f"python -m benchmarks.{self.name.replace('-', '_')}",
            description=description,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        parser.add_argument("--dtypes", nargs="+", default=dtypes, metavar="DTYPE")
        parser.add_argument("--curves", nargs="+", choices=self.curves, default=list(self.curves))
        report.add_speed_options(parser, rounds, seconds)
        self.grow(parser.parse_args())

    def grow(self, options: argparse.Namespace) -> None:
        """Measure the curves, draw them and write the report."""
        path, result = report.begin(options, self.name), report.Report(self.name, self.method)
        panels: dict[str, dict[str, dict[int, Spread]]] = {}
        for name in options.curves:
            curves: dict[str, dict[int, Spread]] = {f"nmt {dtype}": {} for dtype in options.dtypes}
            for value in self.curves[name].values:
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
            panels[self.curves[name].title] = curves
        result.add_figure(self.name, self.about, figures.curves(panels, self.unit))
        for title, curves in panels.items():
            rows = [
                [f"{value:,}", *(report.shown(curve[value]) for curve in curves.values())]
                for value in next(iter(curves.values()))
            ]
            result.add(report.table([title, *(f"{system}, ms" for system in curves)], rows))
        result.write(options.out, options.page)
        print(options.out / f"{self.name}.md")


def samples_of_nmt(
    options: argparse.Namespace,
    point: Any,
    setup: Mapping[str, Any],
    request: Callable[[int], Mapping[str, Any]],
    package: str = "benchmarks.peers",
) -> list[Sample]:
    """Return the samples of a point, those of each type of arithmetic in turn.

    Args:
        setup, package: as of `Worker`.
        request: as of `take_turns`.

    Raises:
        WorkerError: nmt does not start, or fails.
    """
    systems = [System("nmt", dtype) for dtype in options.dtypes]
    with started(systems, {"nmt": sys.executable}, setup, package) as (workers, absent):
        if absent:
            raise WorkerError(next(iter(absent.values())))
        return list(take_turns(workers, dataclasses.asdict(point), options.rounds, request))
