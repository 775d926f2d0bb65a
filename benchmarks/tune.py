"""The kernels of an update: their errors, and the time of each way to launch them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.kernels import seconds_of
from benchmarks.peers.serve import Size
from benchmarks.synthetic import Pair
from nmt_cli.fast.cuda import operators
from nmt_cli.fast.cuda.bins import binned
from nmt_cli.fast.cuda.operators import Launch
from nmt_cli.fast.layout import Binned, layout_of
from nmt_cli.fast.packing import Bins
from nmt_cli.interfaces import ragged
from nmt_cli.layers.attention import FullAttention

CANDIDATES: dict[str, list[Launch]] = {
    "attention": [
        Launch(4, 64),
        Launch(4, 64, 264, 2),
        Launch(4, 64, 396, 2),
        Launch(8, 64),
        Launch(8, 128),
        Launch(8, 128, 132, 2),
        Launch(8, 128, 264, 2),
        Launch(4, 128),
    ],
    "attention_backward": [
        Launch(8),
        Launch(8, 1, 132, 2),
        Launch(8, 1, 264),
        Launch(4),
        Launch(16),
        Launch(16, 1, 132, 2),
    ],
    "residual_norm": [
        Launch(1, 1),
        Launch(2, 1),
        Launch(4, 2),
        Launch(4, 4),
        Launch(8, 8),
    ],
    "residual_norm_backward": [
        Launch(1, 1, 2112),
        Launch(1, 1, 1056),
        Launch(2, 1, 2112),
        Launch(2, 1, 1056),
        Launch(4, 1, 1056),
        Launch(4, 2, 528),
        Launch(4, 4, 528),
        Launch(8, 8, 264),
    ],
    "relu_backward": [
        Launch(8, 1, 264),
        Launch(8, 1, 528),
        Launch(8, 1, 1056),
        Launch(8, 2, 528),
        Launch(4, 1, 1056),
    ],
}
BLOCKS = {"cross_entropy": [(8, 4096), (16, 8192), (16, 16_384), (32, 16_384), (32, 32_768)]}


class Inputs:
    """Tensors of an update of `tokens` tokens a side, in bins as a training has them."""

    def __init__(
        self,
        size: Size,
        pairs: Sequence[Pair],
        tokens: int,
        device: torch.device,
        dtype: torch.dtype = torch.bfloat16,
    ) -> None:
        count = int(np.searchsorted(np.cumsum([len(target) + 1 for _, target in pairs]), tokens))
        batch = binned(*(ragged([pair[side] for pair in pairs[:count]]) for side in (0, 1)))
        batch = batch.map_tensors(lambda tensor: tensor.to(device))
        assert isinstance(batch.sources, Bins)
        assert isinstance(batch.targets, Bins)
        self.size = size
        self.sources, self.targets = batch.sources, batch.targets
        self.N = batch.source.numel()
        self.device = device
        self.dtype = dtype
        generator = torch.Generator(device).manual_seed(1)
        self.draw = partial(torch.randn, device=device, generator=generator)

    def rows(self, width: int) -> Tensor:
        return self.draw(self.N, width).to(self.dtype)

    def works(self) -> dict[str, Callable[[], Any]]:
        """Return a call of each kernel's operator."""
        size, N = self.size, self.N
        d_k = size.width // size.heads
        packed = [self.rows(3 * size.width)]
        x, y, g = (self.rows(size.width) for _ in range(3))
        weight, bias = self.draw(size.width), self.draw(size.width)
        inner, inner_gradient = self.rows(size.inner).relu(), self.rows(size.inner)
        sentences = (self.targets.sentences, self.targets.sentences)
        _, normed, inverse, seed = operators.residual_norm(x, y, weight, bias, 0.1, 1e-5)
        chunk = -(-N // -(-N // 8192))
        logits = self.draw(chunk, size.vocabulary).to(self.dtype)
        targets = torch.randint(size.vocabulary, (chunk,), device=self.device)
        numbers = (size.heads, d_k, True)
        return {
            "attention": lambda: operators.attention(packed, *sentences, *numbers),
            "attention_backward": lambda: operators.attention_backward(
                g, packed, *sentences, *numbers
            ),
            "residual_norm": lambda: operators.residual_norm(x, y, weight, bias, 0.1, 1e-5),
            "residual_norm_backward": lambda: operators.residual_norm_backward(
                g, normed, weight, inverse, seed, 0.1
            ),
            "relu_backward": lambda: operators.relu_backward(inner_gradient, inner),
            "cross_entropy": lambda: operators.cross_entropy(logits, targets, 0.1),
        }


@contextmanager
def launched(name: str, launch: Launch, block: int | None = None) -> Iterator[None]:
    """Launch a kernel in this way."""
    before = operators.LAUNCHES[name], operators.LOGITS
    operators.LAUNCHES[name] = launch
    operators.LOGITS = block or operators.LOGITS
    try:
        yield
    finally:
        operators.LAUNCHES[name], operators.LOGITS = before


def ways() -> list[tuple[str, Launch, int | None]]:
    """Return each candidate: the kernel, its launch, and its block."""
    candidates: list[Any] = [
        (name, launch, None) for name, launches in CANDIDATES.items() for launch in launches
    ]
    for name, blocks in BLOCKS.items():
        candidates += [(name, Launch(warps), block) for warps, block in blocks]
    return candidates


def times(inputs: Inputs) -> Iterator[tuple[str, Launch, int | None, float | str]]:
    """Yield the microseconds of each candidate, or why it fails."""
    works = inputs.works()
    for name, launch, block in ways():
        with launched(name, launch, block):
            try:
                yield name, launch, block, 1e6 * microbenchmark(works[name], inputs.device)
            except Exception as error:  # out of resources
                yield name, launch, block, f"{type(error).__name__}: {error}"[:60]


def microbenchmark(work: Callable[[], Any], device: torch.device) -> float:
    """Return the seconds of a call, in a CUDA graph of several calls where there is a GPU."""
    if device.type != "cuda":
        return seconds_of(work, device)
    work()
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    with torch.cuda.stream(stream):
        work()
    torch.cuda.synchronize()
    graph, count = torch.cuda.CUDAGraph(), 10
    with torch.cuda.graph(graph):
        for _ in range(count):
            work()
    return seconds_of(graph.replay, device) / count


def errors(inputs: Inputs) -> Iterator[tuple[str, float]]:
    """Yield the relative error of each output and gradient, against PyTorch's lines in float64."""
    for kind in ("self", "causal", "cross"):
        yield from errors_of_attention(inputs, kind)
    for rate in (0.0, 0.1):
        yield from errors_of_residual(inputs, rate)
    yield from errors_of_relu(inputs)
    yield from errors_of_loss(inputs)


def errors_of_attention(inputs: Inputs, kind: str) -> Iterator[tuple[str, float]]:
    size = inputs.size
    d_k = size.width // size.heads
    keys = inputs.targets
    widths = [3]
    if kind == "cross":
        keys = inputs.sources
        widths = [1, 2]
    packed = [inputs.rows(n * size.width).requires_grad_() for n in widths]
    gradient = inputs.rows(size.width)
    layout = layout_of(inputs.targets, keys, causal=kind == "causal")
    assert isinstance(layout, Binned)
    sentences = (layout.queries.sentences, layout.keys.sentences)
    output = operators.attention(packed, *sentences, size.heads, d_k, layout.causal)
    wide = [product.detach().double().requires_grad_() for product in packed]
    heads = []
    for product in wide:
        for part in torch.split(product, size.width, 1):
            heads.append(part.view(inputs.N, size.heads, d_k))
    expected = layout.attend(FullAttention(), *heads).flatten(1)
    yield f"attention, {kind}", relative(output, expected)
    ours = torch.autograd.grad(output, packed, gradient)
    others = torch.autograd.grad(expected, wide, gradient.double())
    for mine, other in zip(ours, others, strict=True):
        yield f"attention, {kind}, gradient", relative(mine, other)


def errors_of_residual(inputs: Inputs, rate: float) -> Iterator[tuple[str, float]]:
    """PyTorch has the mask of the kernel that computes the gradient."""
    C = inputs.size.width
    about = f"residual connection, rate {rate}"
    gradient = inputs.rows(C)
    tensors = [inputs.rows(C), inputs.rows(C), inputs.draw(C), inputs.draw(C)]
    ours = [tensor.clone().requires_grad_() for tensor in tensors]
    output, normed, inverse, seed = operators.residual_norm(*ours, rate, 1e-5)
    saved = (normed.detach(), torch.ones(C, device=inputs.device), inverse.detach(), seed)
    _, of_y, _ = operators.residual_norm_backward(gradient, *saved, rate)
    mask = torch.ne(of_y, 0)
    yield f"{about}: share that is kept", float(mask.double().mean())
    wide = [tensor.double().requires_grad_() for tensor in tensors]
    total = wide[0] + wide[1] * mask / (1 - rate)
    expected = torch.nn.functional.layer_norm(total, (C,), wide[2], wide[3], 1e-5)
    yield about, relative(output, expected)
    gradients, again = (
        torch.autograd.grad(output, ours, gradient, retain_graph=True) for _ in range(2)
    )
    for number, mine in enumerate(gradients):
        assert torch.equal(mine, again[number])
    others = torch.autograd.grad(expected, wide, gradient.double())
    for part, mine, other in zip("x y weight bias".split(), gradients, others, strict=True):
        yield f"{about}, gradient of {part}", relative(mine, other)


def errors_of_relu(inputs: Inputs) -> Iterator[tuple[str, float]]:
    output, gradient = inputs.rows(inputs.size.inner).relu(), inputs.rows(inputs.size.inner)
    ours, bias = operators.relu_backward(gradient, output)
    expected = gradient.double() * (output > 0)
    yield "ReLU, gradient", relative(ours, expected)
    yield "ReLU, gradient of bias", relative(bias, expected.sum(0))


def errors_of_loss(inputs: Inputs) -> Iterator[tuple[str, float]]:
    V = inputs.size.vocabulary
    rows = min(inputs.N, 2048)
    logits = (3 * inputs.draw(rows, V)).to(inputs.dtype)
    targets = torch.randint(V, (rows,), device=inputs.device)
    wide = logits.double()
    normalisers, target_logits = operators.cross_entropy(logits, targets, 0.1)
    expected = wide.softmax(1)
    expected[torch.arange(rows), targets] -= 0.9
    yield "loss: log-normalisers", relative(normalisers, wide.logsumexp(1))
    yield "loss: logits of targets", relative(target_logits, wide.gather(1, targets[:, None])[:, 0])
    yield "loss: gradient", relative(logits, expected)


def relative(ours: Tensor, expected: Tensor) -> float:
    """Return the norm of the difference, by the norm of what is expected."""
    ours, expected = ours.detach().double(), expected.detach().double()
    return float((ours - expected).norm() / expected.norm())
