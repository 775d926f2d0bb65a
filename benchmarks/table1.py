"""Table 1, measured: how time and operations of a layer grow, its sequential operations and its longest path.

    python -m benchmarks.table1 [--out DIRECTORY]

Operations are counted by PyTorch; the chain of dependent operations and the path between the first and the last
position are found in the graph that autograd records. One thread.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import torch

from benchmarks import layer_graph, report
from benchmarks.layer_graph import Layer, Stack, longest_chain, multiply_adds, path_length, stacked
from benchmarks.samples import Sample, Spread, append, rates, spread


class Point(NamedTuple):
    """The sizes of a layer and its sentence."""

    n: int
    d: int
    k: int
    r: int


class Row(NamedTuple):
    """A row of Table 1, as printed, and the layer."""

    complexity: str
    sequential: str
    path: str
    predicted: Callable[[int, int, int, int], float]  # of n, d, k, r
    make: Callable[[int, int, int], Layer]  # of d, k, r
    counted: Callable[[int, int, int], Layer]  # the same, every step an operation of its own
    stack: Callable[[int, int, int], Stack]


def dilated(make: Callable[[int, int, int, int], Layer]) -> Callable[[int, int, int], Stack]:
    return lambda d, k, r: stacked(lambda number: make(d, k, r, k**number))


def alike(make: Callable[[int, int, int], Layer]) -> Callable[[int, int, int], Stack]:
    return lambda d, k, r: stacked(lambda _: make(d, k, r))


ROWS = {
    "self-attention": Row(
        *("n² d", "1", "1", lambda n, d, k, r: n * n * d),
        *(layer_graph.self_attention, layer_graph.self_attention, alike(layer_graph.self_attention)),
    ),
    "recurrent": Row(
        *("n d²", "n", "n", lambda n, d, k, r: n * d * d),
        *(layer_graph.recurrent, layer_graph.recurrent_cells, lambda d, k, r: layer_graph.cells(d)),
    ),
    "convolutional": Row(
        *("k n d²", "1", "log_k n", lambda n, d, k, r: k * n * d * d),
        *(layer_graph.convolution, layer_graph.convolution, dilated(layer_graph.convolution)),
    ),
    "convolutional, separable": Row(
        *("k n d + n d²", "1", "log_k n", lambda n, d, k, r: k * n * d + n * d * d),
        *(layer_graph.separable_convolution, layer_graph.separable_convolution),
        dilated(layer_graph.separable_convolution),
    ),
    "self-attention, restricted": Row(
        *("r n d", "1", "n / r", lambda n, d, k, r: r * n * d),
        *(layer_graph.restricted_attention, layer_graph.restricted_attention, alike(layer_graph.restricted_attention)),
    ),
}
POINT = Point(n=512, d=512, k=4, r=64)
CURVES = {
    "n": (128, 256, 512, 1024, 2048),
    "d": (64, 128, 256, 512, 1024),
    "k": (2, 4, 8, 16, 32),
    "r": (16, 32, 64, 128, 256),
}
LENGTHS = (4, 16, 64)
SMALL = (16, 4, 8)  # d, k, r
"""Of the graphs: neither the chain nor the path depends on d."""
METHOD = """
One layer, one sentence, one thread, float32. Attention has 8 heads and no projections, as in Table 1; the recurrent
layer is an LSTM; convolutions see a position and those before it. Unless it changes: n = 512, d = 512, k = 4, r = 64.
"""
GRAPHS = """
"Chain": operations of the longest chain of dependent ones in the graph of one layer. "Path": after how many layers
(cells of the recurrent one) the gradient of the last position reaches the first. Convolutions are dilated: 4^i in layer
i, k = 4. The neighbourhood is r = 8, so that a layer reaches 4 positions to each side.
"""
GROWTH = """
Growth for twice the n, d, k or r: as the paper's formula predicts / multiply-adds of a forward pass, counted / time of
a forward and a backward pass, medians of the rounds. Each is the mean over the last two doublings. In the figure, a
dotted line is the predicted growth.
"""


def points(row: Row, quantity: str) -> list[Point]:
    """Return the points of a curve; none if the layer's operations do not depend on the quantity."""
    found = [POINT._replace(**{quantity: value}) for value in CURVES[quantity]]
    return found if row.predicted(*found[0]) != row.predicted(*found[-1]) else []


def seconds(layer: Layer, n: int, d: int) -> float:
    """Return the time of a forward and a backward pass."""
    x = torch.randn(n, d, requires_grad=True)
    began = time.perf_counter()
    torch.autograd.backward(layer(x).sum())
    return time.perf_counter() - began


def measure(rounds: int) -> list[Sample]:
    """Return samples of all points, those of all layers in turn; each layer computes once before."""
    samples = []
    cases = [
        (name, point, row.make(*point[1:]))
        for quantity in CURVES
        for name, row in ROWS.items()
        for point in points(row, quantity)
    ]
    for number in range(-1, rounds):
        for name, point, layer in cases:
            taken = seconds(layer, point.n, point.d)
            if number >= 0:
                samples.append(Sample(point._asdict(), name, number, 1.0, taken))
    return samples


def times(samples: Sequence[Sample], name: str, quantity: str) -> dict[int, Spread]:
    """Return the milliseconds of a curve."""
    return {
        getattr(point, quantity): spread([1000 / rate for rate in rates(samples, point._asdict(), name).values()])
        for point in points(ROWS[name], quantity)
    }


def doubling(values: Sequence[float]) -> float:
    """Return the growth for twice the quantity, the mean over the last two doublings."""
    return math.sqrt(values[-1] / values[-3])


def growth(name: str, quantity: str, curve: Mapping[int, Spread]) -> str:
    """Return a cell: predicted, counted and measured growth."""
    row, cases = ROWS[name], points(ROWS[name], quantity)
    if not cases:
        return ""
    predicted = [row.predicted(*case) for case in cases]
    counted = [multiply_adds(row.counted(*case[1:]), case.n, case.d) for case in cases[-3:]]
    measured = [each.median for each in curve.values()]
    return " / ".join(f"{doubling(values):.2f}" for values in (predicted, counted, measured))


def graphs(row: Row) -> list[str]:
    """Return the cells of a layer's chains and paths."""
    layer, d = row.counted(*SMALL), SMALL[0]
    chains = [longest_chain(layer(torch.randn(n, d, requires_grad=True))) for n in LENGTHS]
    torch.set_default_dtype(torch.float64)  # a path's gradient is small
    try:
        paths = [path_length(row.stack(*SMALL), n, d) for n in LENGTHS]
    finally:
        torch.set_default_dtype(torch.float32)
    return [row.complexity, row.sequential, joined(chains), row.path, joined(paths)]


def joined(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))


def main() -> None:
    from benchmarks import figures  # not at the top: what is counted in graphs needs no matplotlib

    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.table1", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    report.add_options(parser, rounds=5)
    options = parser.parse_args()
    path = report.begin(options, "table1")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    samples = measure(options.rounds)
    for sample in samples:
        append(path, sample)
    panels = {quantity: {name: times(samples, name, quantity) for name in ROWS} for quantity in CURVES}
    drawn = {quantity: {name: curve for name, curve in curves.items() if curve} for quantity, curves in panels.items()}
    predicted = {
        quantity: {name: [ROWS[name].predicted(*point) for point in points(ROWS[name], quantity)] for name in curves}
        for quantity, curves in drawn.items()
    }
    result = report.Report("table1", METHOD)
    at = f"n = {joined(LENGTHS)}"
    head = ["layer", "complexity", "sequential operations", f"chain, {at}", "maximum path length", f"path, {at}"]
    result.add(report.paragraph(GRAPHS), report.table(head, [[name, *graphs(row)] for name, row in ROWS.items()]))
    rows = [[name, *(growth(name, quantity, panels[quantity][name]) for quantity in CURVES)] for name in ROWS]
    result.add(report.paragraph(GROWTH), report.table(["layer", *CURVES], rows))
    result.add_figure("table1", "Time of a layer", figures.curves(drawn, "ms, forward and backward", predicted))
    result.write(options.out)
    print(options.out / "table1.md")


if __name__ == "__main__":
    main()
