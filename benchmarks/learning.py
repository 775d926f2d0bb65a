"""Learning curves of systems, drawn from a file of points; recipes/table2.sh makes both.

    python -m benchmarks.learning POINTS.json FIGURE.svg

POINTS.json has, by the name of the system, a list of [minutes of training, BLEU] for each seed. A line is the mean over
the seeds, a band their range.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks import figures
from benchmarks.report import save_figure
from benchmarks.samples import Spread

Curve = Sequence[tuple[float, float]]


def over_seeds(curves: Sequence[Curve]) -> list[tuple[float, Spread]]:
    """Return for each validation that all seeds have its mean time, and the lowest, mean and highest value."""
    points = []
    for seeds in zip(*curves, strict=False):
        values = [value for _, value in seeds]
        minutes = statistics.fmean(minutes for minutes, _ in seeds)
        points.append((minutes, Spread(min(values), statistics.fmean(values), max(values))))
    return points


def main(points: str, figure: str) -> None:
    systems: Mapping[str, Sequence[Curve]] = json.loads(Path(points).read_text(encoding="utf-8"))
    curves = {system: over_seeds(each) for system, each in systems.items()}
    save_figure(figures.learning(curves, "minutes of training", "dev BLEU, greedy"), Path(figure))


if __name__ == "__main__":
    main(*sys.argv[1:])
