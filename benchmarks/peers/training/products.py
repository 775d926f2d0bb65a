"""The peak of matrix products on this machine: the fastest of several ways at a model's shapes.

A pass is counted in floating-point operations.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from benchmarks.peers.training.serve import Setup, System, serve

ROUNDS = 3
PASS_SECONDS = 0.3
Product = Callable[[], Tensor]


def build(setup: Setup) -> System:
    candidates = [*products(setup)]
    for product, _ in candidates:
        product()
    rates = [max(rate(product, flops) for _ in range(ROUNDS)) for product, flops in candidates]
    product, flops = candidates[rates.index(max(rates))]
    repeats = max(1, round(PASS_SECONDS * max(rates) / flops))

    def one_pass() -> float:
        for _ in range(repeats):
            product()
        return repeats * flops

    return System(torch.__version__, one_pass)


def products(setup: Setup) -> Iterator[tuple[Product, float]]:
    """Yield the products of a training step, forward ones and gradients, with their operations."""
    width, inner, rows = setup.width, setup.inner, setup.tokens
    dtype = getattr(torch, setup.dtype)
    shapes = [
        (rows, width, 3 * width),
        (rows, width, inner),
        (rows, inner, width),
        (rows, width, setup.vocabulary),
    ]
    for m, k, n in shapes:
        left, weight, gradient = (
            (9 * torch.randn(shape)).to(dtype) for shape in ((m, k), (n, k), (m, n))
        )
        for product in (
            integer_ways(left, weight) if dtype == torch.int8 else ways(left, weight, gradient)
        ):
            yield product, 2.0 * m * k * n


def integer_ways(left: Tensor, weight: Tensor) -> Iterator[Product]:
    """Yield ways to compute a linear layer [m, k] x [n, k] -> [m, n] in int8, summed in int32."""
    for transposed in (weight.t(), weight.t().contiguous()):
        yield lambda transposed=transposed: torch._int_mm(left, transposed)  # type: ignore[misc]


def ways(left: Tensor, weight: Tensor, gradient: Tensor) -> Iterator[Product]:
    """Yield ways to compute a linear layer [m, k] x [n, k] -> [m, n] and its gradients."""
    into = torch.empty(len(left), len(weight), dtype=left.dtype)
    yield lambda: torch.mm(left, weight.t(), out=into)
    yield lambda: gradient @ weight
    yield lambda: gradient.t() @ left
    if torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        onednn = torch.ops.mkldnn._linear_pointwise
        yield lambda: onednn(left, weight, None, "none", [], "")
        packed = torch.ops.mkldnn._reorder_linear_weight(weight, len(left))
        yield lambda: onednn(left, packed, None, "none", [], "")


def rate(product: Product, flops: float) -> float:
    """Return the operations a second of one call."""
    began = time.perf_counter()
    product()
    return flops / (time.perf_counter() - began)


if __name__ == "__main__":
    serve(build, ("float32", "bfloat16", "int8"))
