"""Kernels, in Triton's interpreter, against the core's lines in float32."""

from __future__ import annotations

import os

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from nmt_cli.fast.cuda import operators
from nmt_cli.fast.layout import layout_of
from nmt_cli.fast.loss import to_gradient
from nmt_cli.fast.packing import Bins
from nmt_cli.layers.attention import FullAttention, MultiHeadAttention

pytest.importorskip("triton")
pytestmark = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") != "1", reason="make test-kernels: interprets kernels"
)
CPU = torch.device("cpu")


def bins(W: int, *lengths: list[int]) -> Bins:
    """Return sentences side by side in bins, and a bin of filler."""
    sentences = torch.zeros(len(lengths) + 1, W, dtype=torch.int64)
    number = 0
    for row, lengths_in_bin in zip(sentences, lengths, strict=False):
        first = 0
        for length in lengths_in_bin:
            number += 1
            row[first : first + length] = number
            first += length
    return Bins(sentences, torch.zeros(sentences.numel(), dtype=torch.int64))


QUERIES = bins(16, [3, 9], [1], [7, 5, 4])
KEYS = bins(16, [2, 14], [4], [1, 8, 6])


def close(left: Tensor, right: Tensor, tolerance: float = 1e-5) -> None:
    """Within a relative `tolerance`."""
    assert (left - right).norm() <= tolerance * right.norm()


@pytest.mark.parametrize("d_k", [16, 32])
@pytest.mark.parametrize("kind", ["self", "causal", "cross"])
def test_attention(kind: str, d_k: int) -> None:
    """The output and the gradients of the product, of the filler too."""
    torch.manual_seed(0)
    cross = kind == "cross"
    keys = KEYS if cross else QUERIES
    layout = layout_of(QUERIES, keys, causal=kind == "causal")
    attention = MultiHeadAttention(8, 2, d_k, d_k, FullAttention(), cross=cross)
    N, parts = QUERIES.sentences.numel(), ("q", "kv") if cross else ("qkv",)
    packed = [torch.randn(N, 2 * d_k * len(part), requires_grad=True) for part in parts]
    heads = [
        head for x, part in zip(packed, parts, strict=True) for head in attention.split(x, part)
    ]
    expected = layout.attend(attention.kernel, *heads).flatten(1)
    output = operators.attention(
        packed, QUERIES.sentences, keys.sentences, 2, d_k, kind == "causal"
    )
    close(output, expected)
    gradient = torch.randn_like(expected)
    for mine, other in zip(
        torch.autograd.grad(output, packed, gradient),
        torch.autograd.grad(expected, packed, gradient),
        strict=True,
    ):
        close(mine, other)


def mask(N: int, C: int, rate: float) -> Tensor:
    """What the kernel keeps at the next seed of the generator."""
    with torch.random.fork_rng(devices=[]):
        zeros, ones = torch.zeros(N, C), torch.ones(N, C)
        bias = torch.zeros(C)
        output, *_ = operators.residual_norm(zeros, ones, torch.ones(C), bias, rate, 1e-5)
    return output > 0


@pytest.mark.parametrize("rate", [0.0, 0.4])
def test_residual_norm(rate: float) -> None:
    """With rows that do not fill a tile, and several tiles a program."""
    torch.manual_seed(0)
    N, C = 21, 32
    x, y, gradient = torch.randn(3, N, C).unbind()
    tensors = [x, y, torch.randn(C), torch.randn(C)]
    inputs = [tensor.clone().requires_grad_() for tensor in tensors]
    keep = mask(N, C, rate) if rate else torch.ones(N, C, dtype=torch.bool)
    output, *_ = operators.residual_norm(*inputs, rate, 1e-5)
    others = [tensor.clone().requires_grad_() for tensor in tensors]
    total = others[0] + others[1] * keep / (1 - rate)
    expected = F.layer_norm(total, (C,), others[2], others[3], 1e-5)
    close(output, expected)
    gradients = torch.autograd.grad(output, inputs, gradient)
    for number, other in enumerate(torch.autograd.grad(expected, others, gradient)):
        close(gradients[number], other, 1e-5 if number < 2 else 1e-4)
