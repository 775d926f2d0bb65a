"""The layers of Table 1, and what their graphs say: operations, the longest chain of them, the longest path.

Letters: n positions, d width, k width of a convolution's kernel, r neighbourhood of restricted self-attention.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from nmt_cli.layers.attention import AttentionMask, FullAttention, Kernel
from nmt_cli.layers.restricted_attention import RestrictedAttention, RestrictedAttentionConfig

HEADS = 8
Layer = Callable[[Tensor], Tensor]  # [n, d] -> [n, d]
Stack = Callable[[Tensor], Iterator[Tensor]]  # [n, d] -> [n, d] after 1, 2, ... layers, or cells of a recurrent one


def attention(kernel: Kernel, d: int) -> Layer:
    """Return self-attention without its projections, which Table 1 leaves out."""

    def layer(x: Tensor) -> Tensor:
        heads = x.view(1, -1, HEADS, d // HEADS).transpose(1, 2)  # [1, H, n, d / H]
        output: Tensor = kernel(heads, heads, heads, AttentionMask())
        return output.transpose(1, 2).reshape_as(x)

    return layer


def self_attention(d: int, k: int, r: int) -> Layer:
    return attention(FullAttention(), d)


def restricted_attention(d: int, k: int, r: int) -> Layer:
    return attention(RestrictedAttention(RestrictedAttentionConfig(neighbourhood=r)), d)


def recurrent(d: int, k: int, r: int) -> Layer:
    """Return an LSTM, whose steps PyTorch computes in one function."""
    lstm = nn.LSTM(d, d)
    return lambda x: lstm(x)[0]


def recurrent_cells(d: int, k: int, r: int) -> Layer:
    """Return the same LSTM as a loop of cells."""
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
    """Return a convolution over a position and those before it."""
    return shifted(nn.Conv1d(d, d, k, dilation=dilation), (k - 1) * dilation)


def separable_convolution(d: int, k: int, r: int, dilation: int = 1) -> Layer:
    """Return a convolution of each channel, then a product with a d x d matrix at each position."""
    each_channel = nn.Conv1d(d, d, k, dilation=dilation, groups=d)
    return shifted(nn.Sequential(each_channel, nn.Conv1d(d, d, 1)), (k - 1) * dilation)


def shifted(module: nn.Module, before: int) -> Layer:
    return lambda x: module(F.pad(x.T[None], (before, 0)))[0].T


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
            output, memory = cell(x, (later(output), later(memory)))
            yield output

    return outputs


def later(x: Tensor) -> Tensor:
    """Return [n, d] one position later, with zeros first."""
    return F.pad(x, (0, 0, 1, 0))[:-1]


def path_length(stack: Stack, n: int, d: int) -> int:
    """Return the number of layers, or cells, after which the last position's gradient reaches the first position."""
    x = torch.randn(n, d, requires_grad=True)
    for length, y in enumerate(stack(x), 1):
        (gradient,) = torch.autograd.grad(y[-1].sum(), x, retain_graph=True)
        if gradient[0].any():
            return length
    raise AssertionError("a stack has no end")
