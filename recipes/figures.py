"""The figures of recipes/table2.sh and recipes/table3.sh, with matplotlib.

figures.py curves POINTS.json FIGURE.svg         dev BLEU against minutes of training; from table2.py curves
figures.py differences POINTS.json FIGURE.svg    the rows' differences to the base model; from table3.py differences
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot

# Colours that suit light and dark pages.
COLOURS = ("#3b82c4", "#d97a2b", "#3f9e5a", "#c2554f", "#8b6fc0", "#a08030", "#4aa5a5", "#7a7a7a")
GREY = "#808080"
pyplot.rcParams.update({f"{part}.color": GREY for part in ("text", "xtick", "ytick", "grid")})
pyplot.rcParams.update({"axes.edgecolor": GREY, "axes.labelcolor": GREY, "font.size": 8, "legend.frameon": False})
pyplot.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "nmt", "axes.grid": True, "grid.alpha": 0.3})


def curves(systems: Mapping[str, Sequence[Sequence[tuple[float, float]]]]) -> Any:
    """Return a curve for each system: the mean over its seeds, in a band from the lowest to the highest one."""
    figure, axis = pyplot.subplots(figsize=(7.5, 3.5), layout="constrained")
    for (system, seeds), colour in zip(systems.items(), COLOURS, strict=False):
        validations = list(zip(*seeds, strict=False))  # those that all seeds have
        minutes = [statistics.fmean(minutes for minutes, _ in points) for points in validations]
        values = [[bleu for _, bleu in points] for points in validations]
        axis.plot(minutes, list(map(statistics.fmean, values)), "o-", markersize=2, color=colour, label=system)
        axis.fill_between(minutes, list(map(min, values)), list(map(max, values)), color=colour, alpha=0.2, linewidth=0)
    axis.set(xlabel="minutes of training", ylabel="dev BLEU, greedy", ylim=(0, None))
    axis.legend()
    return figure


def differences(panels: Mapping[str, Mapping[str, tuple[float, Sequence[float]]]]) -> Any:
    """Return a panel for each measure: a circle for the paper's difference, and a dot for each seed's."""
    rows = list(next(iter(panels.values())))
    size = (7.5, 0.8 + 0.18 * len(rows))
    figure, axes = pyplot.subplots(1, len(panels), figsize=size, squeeze=False, sharey=True, layout="constrained")
    for axis, (measure, values) in zip(axes[0], panels.items(), strict=True):
        papers = [values[row][0] for row in rows]
        seeds = [(difference, place) for place, row in enumerate(rows) for difference in values[row][1]]
        axis.scatter(papers, range(len(rows)), s=28, facecolors="none", edgecolors=COLOURS[1], label="in the paper")
        axis.scatter(*zip(*seeds, strict=True), s=9, color=COLOURS[0], label="here, each seed")
        axis.axvline(0, color=GREY, linewidth=1)
        axis.set(xlabel=f"{measure}, difference to base", yticks=range(len(rows)), yticklabels=rows)
        axis.set_ylim(len(rows) - 0.5, -0.5)
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside upper center", ncols=2)
    return figure


def main(kind: str, points: str, figure: str) -> None:
    content = json.loads(Path(points).read_text(encoding="utf-8"))
    drawn = curves(content) if kind == "curves" else differences(content)
    drawn.savefig(figure, transparent=True, bbox_inches="tight", metadata={"Date": None})


if __name__ == "__main__":
    main(*sys.argv[1:])
