"""Table 1, measured: the operations and the time of a layer, its sequential operations and its longest path.

    python -m benchmarks.table1 [--rounds N] [--out DIRECTORY]

Operations are counted by PyTorch. The chain of dependent operations and the path between the first and the last
position are found in the graph that autograd records.

Letters: n positions, d width, k width of a convolution's kernel, r neighbourhood of restricted self-attention.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from benchmarks import report
from benchmarks.samples import spread
from nmt_cli.layers.attention import AttentionMask, FullAttention, Kernel
from nmt_cli.layers.restricted_attention import RestrictedAttention, RestrictedAttentionConfig

HEADS = 8
SIZES = {"d": 512, "k": 4, "r": 64}
TIMED = (128, 512, 2048)
LENGTHS = (4, 16, 64)
SMALL = {"d": 16, "k": 4, "r": 8}
"""Of the graphs: neither the chain nor the path depends on d."""
METHOD = """
One layer, one sentence, one thread, float32. Attention has 8 heads and no projections, as in Table 1. The recurrent
layer is an LSTM. Convolutions see a position and the earlier ones. Times: d = 512, k = 4, r = 64.
"""
GRAPHS = """
"Chain": length of the longest chain of dependent operations in the graph of one layer. "Path": after how many layers
(cells of the recurrent one) the gradient of the last position reaches the first. Convolutions are dilated: 4^i in layer
i, k = 4. The neighbourhood is r = 8, so that a layer reaches 4 positions to each side.
"""
TIMES = "Milliseconds of a forward and a backward pass, medians over the rounds, with the quartiles in brackets."
Layer = Callable[[Tensor], Tensor]  # [n, d] -> [n, d]
Stack = Callable[[Tensor], Iterator[Tensor]]  # [n, d] -> [n, d] after 1, 2, ... layers, or cells of a recurrent one


def attention(kernel: Kernel, d: int) -> Layer:
    """Return self-attention without its projections, which Table 1 leaves out."""

    def layer(x: Tensor) -> Tensor:
        heads = x.view(1, -1, HEADS, d // HEADS).transpose(1, 2)  # [1, H, n, d / H]
        output: Tensor = kernel(heads, heads, heads, AttentionMask())
        return output.transpose(1, 2).reshape_as(x)

    return layer


def self_attention(d: int, k: int, r: int, dilation: int = 1) -> Layer:
    return attention(FullAttention(), d)


def restricted_attention(d: int, k: int, r: int, dilation: int = 1) -> Layer:
    return attention(RestrictedAttention(RestrictedAttentionConfig(neighbourhood=r)), d)


def recurrent(d: int, k: int, r: int, dilation: int = 1) -> Layer:
    """Return an LSTM, whose steps PyTorch computes in one function."""
    lstm = nn.LSTM(d, d)
    return lambda x: lstm(x)[0]


def recurrent_cells(d: int, k: int, r: int, dilation: int = 1) -> Layer:
    """Return the same LSTM as a loop of cells, every step an operation of its own."""
    cell = nn.LSTMCell(d, d)

    def layer(x: Tensor) -> Tensor:
        output = memory = x.new_zeros(1, d)
        outputs = []
        for each in torch.split(x, 1):
            output, memory = cell(each, (output, memory))
            outputs.append(output)
        return torch.cat(outputs)

    return layer


def convolution(d: int, k: int, r: int, dilation: int = 1) -> Layer:
    """Return a convolution over a position and the earlier ones."""
    return shifted(nn.Conv1d(d, d, k, dilation=dilation), (k - 1) * dilation)


def separable_convolution(d: int, k: int, r: int, dilation: int = 1) -> Layer:
    """Return a convolution of each channel, then a product with a d x d matrix at each position."""
    each_channel = nn.Conv1d(d, d, k, dilation=dilation, groups=d)
    return shifted(nn.Sequential(each_channel, nn.Conv1d(d, d, 1)), (k - 1) * dilation)


def shifted(module: nn.Module, before: int) -> Layer:
    return lambda x: module(F.pad(x.T[None], (before, 0)))[0].T


class Row(NamedTuple):
    """A row of Table 1, as printed, and the layer."""

    complexity: str
    sequential: str
    path: str
    layer: Callable[..., Layer]  # of d, k, r and the dilation


ROWS = {
    "self-attention": Row("n² d", "1", "1", self_attention),
    "recurrent": Row("n d²", "n", "n", recurrent),
    "convolutional": Row("k n d²", "1", "log_k n", convolution),
    "convolutional, separable": Row("k n d + n d²", "1", "log_k n", separable_convolution),
    "self-attention, restricted": Row("r n d", "1", "n / r", restricted_attention),
}


def multiply_adds(layer: Layer, n: int, d: int) -> int:
    """Return the multiply-adds of matrix products and convolutions in a forward pass."""
    with FlopCounterMode(display=False) as counter:
        layer(torch.randn(n, d))
    return int(counter.get_total_flops()) // 2


def longest_chain(output: Tensor) -> int:
    """Return the length of the longest chain of dependent operations that autograd recorded for `output`."""
    lengths: dict[Any, int] = {}
    waiting = [output.grad_fn]
    while waiting:
        node = waiting[-1]
        inputs = [each for each, _ in node.next_functions if each is not None] if node is not None else []
        unknown = [each for each in inputs if each not in lengths]
        if unknown:
            waiting += unknown
        else:
            lengths[node] = 1 + max((lengths[each] for each in inputs), default=-1)  # a leaf is no operation
            waiting.pop()
    return lengths[output.grad_fn]


def stacked(make: Callable[[int], Layer]) -> Stack:
    """Return a stack of layers with residual connections; `make` gets the number of the layer, from 0."""

    def outputs(x: Tensor) -> Iterator[Tensor]:
        for number in count():
            x = (x + make(number)(x)) / 2  # it neither grows, which would saturate attention, nor vanishes
            yield x

    return outputs


def cells(d: int) -> Stack:
    """Return the steps of a recurrent layer: in each, the cells of all positions compute once, side by side.

    The last position needs as many of them as there are positions before it hears of the first.
    """
    cell = nn.LSTMCell(d, d)

    def outputs(x: Tensor) -> Iterator[Tensor]:
        output = memory = torch.zeros_like(x)
        while True:
            # The state of the position before, [n, d]; the first position has none.
            earlier = [F.pad(state, (0, 0, 1, 0))[:-1] for state in (output, memory)]
            output, memory = cell(x, (earlier[0], earlier[1]))
            yield output

    return outputs


def path_length(stack: Stack, n: int, d: int) -> int:
    """Return the number of layers, or cells, after which the last position's gradient reaches the first position."""
    x = torch.randn(n, d, requires_grad=True)
    for length, y in enumerate(stack(x), 1):
        (gradient,) = torch.autograd.grad(y[-1].sum(), x, retain_graph=True)
        if gradient[0].any():
            return length
    raise AssertionError("a stack has no end")


def graphs(name: str) -> tuple[list[int], list[int]]:
    """Return the longest chains and the paths of a layer with LENGTHS positions."""
    layer, d = ROWS[name].layer, SMALL["d"]
    counted = (recurrent_cells if name == "recurrent" else layer)(**SMALL)
    chains = [longest_chain(counted(torch.randn(n, d, requires_grad=True))) for n in LENGTHS]
    torch.set_default_dtype(torch.float64)  # a path's gradient is small
    try:
        stack = cells(d) if name == "recurrent" else stacked(lambda i: layer(**SMALL, dilation=SMALL["k"] ** i))
        return chains, [path_length(stack, n, d) for n in LENGTHS]
    finally:
        torch.set_default_dtype(torch.float32)


def milliseconds(layer: Layer, n: int) -> float:
    """Return the time of a forward and a backward pass."""
    x = torch.randn(n, SIZES["d"], requires_grad=True)
    began = time.perf_counter()
    torch.autograd.backward(layer(x).sum())
    return 1000 * (time.perf_counter() - began)


def main() -> None:
    options = report.parser("table1", __doc__, rounds=5).parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    counted, timed = [], []
    for name, row in ROWS.items():
        chain, path = (", ".join(map(str, lengths)) for lengths in graphs(name))
        counted.append([name, row.complexity, row.sequential, chain, row.path, path])
        layer = row.layer(**SIZES)
        # The first pass of each is slower.
        found = [[milliseconds(layer, n) for _ in range(options.rounds + 1)][1:] for n in TIMED]
        timed.append([name, *(report.shown(spread(values)) for values in found)])
    at = f"n = {', '.join(map(str, LENGTHS))}"
    head = ["layer", "complexity", "sequential operations", f"chain, {at}", "maximum path length", f"path, {at}"]
    parts = [report.paragraph(GRAPHS), report.table(head, counted)]
    parts += [TIMES, report.table(["layer", *(f"n = {n}" for n in TIMED)], timed)]
    print(report.write(options.out, "table1", METHOD, parts))


if __name__ == "__main__":
    main()
