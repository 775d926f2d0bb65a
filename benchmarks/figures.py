"""Figures of the benchmarks: small SVG files whose colours suit light and dark pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.samples import Spread

try:
    import matplotlib
except ImportError as error:
    raise SystemExit("error: the figures of the benchmarks need matplotlib: pip install -e '.[bench]'") from error

matplotlib.use("svg")
from matplotlib import pyplot, ticker

COLOURS = ("#3b82c4", "#d97a2b", "#3f9e5a", "#c2554f", "#8b6fc0", "#a08030", "#4aa5a5", "#7a7a7a")
GREY = "#808080"

pyplot.rcParams.update({f"{part}.color": GREY for part in ("text", "xtick", "ytick", "grid")})
pyplot.rcParams.update({"axes.edgecolor": GREY, "axes.labelcolor": GREY, "axes.titlesize": 9, "font.size": 8})
pyplot.rcParams.update({"font.family": "DejaVu Sans", "xtick.major.size": 0, "ytick.major.size": 0})
pyplot.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "nmt", "grid.alpha": 0.3, "legend.frameon": False})


def bars(panels: Mapping[str, Mapping[str, Spread]], unit: str) -> Any:
    """Return a figure with a panel of horizontal bars for each entry of `panels`, the quartiles marked on each bar.

    A program has one colour, whatever its type of arithmetic.

    Args:
        panels: by title, the values of each system.
        unit: of the values.
    """
    systems = list(dict.fromkeys(system for panel in panels.values() for system in panel))
    height = 0.8 + 0.2 * len(systems)
    figure, axes = pyplot.subplots(
        1, len(panels), figsize=(7.5, height), squeeze=False, sharey=True, layout="constrained"
    )
    places = range(len(systems))
    programs = list(dict.fromkeys(system.split()[0] for system in systems))
    colours = [COLOURS[programs.index(system.split()[0]) % len(COLOURS)] for system in systems]
    for axis, (title, values) in zip(axes[0], panels.items(), strict=True):
        known = [values.get(system, Spread(0.0, 0.0, 0.0)) for system in systems]
        errors = [[each.median - each.low for each in known], [each.high - each.median for each in known]]
        axis.barh(places, [each.median for each in known], xerr=errors, color=colours, ecolor=GREY, height=0.7)
        axis.set(title=title, xlabel=unit, yticks=list(places), yticklabels=systems)
        axis.grid(axis="x")
        axis.set_axisbelow(True)
    axes[0][0].invert_yaxis()
    return figure


def curves(
    panels: Mapping[str, Mapping[str, Mapping[int, Spread]]],
    unit: str,
    predicted: Mapping[str, Mapping[str, Sequence[float]]] | None = None,
) -> Any:
    """Return a figure with a panel of curves for each entry of `panels`, two in a row, on logarithmic axes.

    A band shows the quartiles, a dotted line, unless the values fall, growth in proportion to the panel's quantity.

    Args:
        panels: by the name of what grows, for each system the values by that quantity.
        unit: of the values.
        predicted: likewise, what the values are expected to be in proportion to, if not to the quantity.
    """
    rows = -(-len(panels) // 2)
    colours = dict(
        zip(dict.fromkeys(system for systems in panels.values() for system in systems), COLOURS, strict=False)
    )
    figure, axes = pyplot.subplots(rows, 2, figsize=(7.5, 2.3 * rows), squeeze=False, layout="constrained")
    for axis, (quantity, systems) in zip(axes.flat, panels.items(), strict=False):
        for system, values in systems.items():
            colour = colours[system]
            places, medians = list(values), [each.median for each in values.values()]
            axis.plot(places, medians, marker="o", markersize=3, color=colour, label=system)
            low, high = ([getattr(each, side) for each in values.values()] for side in ("low", "high"))
            axis.fill_between(places, low, high, color=colour, alpha=0.2, linewidth=0)
            if medians[-1] > medians[0]:
                amounts = predicted[quantity][system] if predicted else places
                axis.plot(places, proportional(amounts, medians), color=colour, linestyle=":", linewidth=1)
        axis.set(xscale="log", yscale="log", xlabel=quantity, ylabel=unit, xticks=places)
        axis.set_xticklabels([f"{place // 1000}k" if place >= 1000 else str(place) for place in places])
        axis.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
        axis.yaxis.set_major_formatter("{x:g}")
        axis.minorticks_off()
        axis.grid()
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside upper center", ncols=len(colours))
    return figure


def learning(systems: Mapping[str, Sequence[tuple[float, Spread]]], time: str, unit: str) -> Any:
    """Return a figure with a learning curve for each system, and a band from the lowest to the highest value.

    Args:
        systems: by name, the points: a time, and the lowest, middle and highest value.
        time, unit: of the two axes.
    """
    figure, axis = pyplot.subplots(figsize=(7.5, 3.5), layout="constrained")
    for (system, points), colour in zip(systems.items(), COLOURS, strict=False):
        times = [when for when, _ in points]
        axis.plot(times, [each.median for _, each in points], marker="o", markersize=2, color=colour, label=system)
        low, high = ([getattr(each, side) for _, each in points] for side in ("low", "high"))
        axis.fill_between(times, low, high, color=colour, alpha=0.2, linewidth=0)
    axis.set(xlabel=time, ylabel=unit, ylim=(0, None))
    axis.grid()
    axis.legend()
    return figure


def differences(panels: Mapping[str, Mapping[str, tuple[float, Sequence[float]]]]) -> Any:
    """Return a figure with a panel for each measure: a row has a circle for the paper, and a dot for each seed.

    Args:
        panels: by measure and by row, the paper's difference to the base model and that of each seed.
    """
    rows = list(next(iter(panels.values())))
    figure, axes = pyplot.subplots(
        1, len(panels), figsize=(7.5, 0.8 + 0.18 * len(rows)), squeeze=False, sharey=True, layout="constrained"
    )
    for axis, (measure, values) in zip(axes[0], panels.items(), strict=True):
        seeds = [(difference, place) for place, row in enumerate(rows) for difference in values[row][1]]
        papers = [values[row][0] for row in rows]
        axis.scatter(papers, range(len(rows)), s=28, facecolors="none", edgecolors=COLOURS[1], label="in the paper")
        axis.scatter(*zip(*seeds, strict=True), s=9, color=COLOURS[0], label="here, each seed")
        axis.axvline(0, color=GREY, linewidth=1)
        axis.set(xlabel=f"{measure}, difference to base", yticks=range(len(rows)), yticklabels=rows)
        axis.set_ylim(len(rows) - 0.5, -0.5)
        axis.grid()
        axis.set_axisbelow(True)
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside upper center", ncols=2)
    return figure


def proportional(amounts: Sequence[float], values: Sequence[float]) -> list[float]:
    """Return the values of the line through the last point that grows in proportion to `amounts`."""
    return [values[-1] * amount / amounts[-1] for amount in amounts]
