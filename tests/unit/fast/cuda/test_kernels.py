"""Kernels, in Triton's interpreter, against the core's lines in float32."""

from __future__ import annotations

import json
import os
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from like_a_gpu import like_a_gpu
from tiny_run import run
from torch import Tensor

from nmt_cli import checkpoint
from nmt_cli.config import resolve
from nmt_cli.criteria.label_smoothed_cross_entropy import LabelSmoothedCrossEntropy
from nmt_cli.criteria.settings import LabelSmoothingConfig
from nmt_cli.fast.cuda import checks, operators
from nmt_cli.fast.cuda.bins import binned
from nmt_cli.fast.cuda.device import Fast
from nmt_cli.fast.layout import layout_of
from nmt_cli.fast.loss import to_gradient
from nmt_cli.fast.packing import Bins
from nmt_cli.interfaces import ragged
from nmt_cli.layers.attention import FullAttention, MultiHeadAttention
from nmt_cli.layers.sublayer import Residual
from nmt_cli.registry import build, discover
from nmt_cli.training import validation
from nmt_cli.training.run_directory import CONFIG
from nmt_cli.training.settings import TrainingConfig
from nmt_cli.weights import load_weights

pytest.importorskip("triton")
pytestmark = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") != "1", reason="make test-kernels: interprets kernels"
)
CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def few_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program computes several tiles, of many rows: the interpreter is slow."""
    launch = operators.Launch(4, rows=16, programs=2)
    monkeypatch.setattr(operators, "LAUNCHES", dict.fromkeys(operators.LAUNCHES, launch))


@pytest.fixture
def _few_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """All rows of a bin are a tile."""
    launch = operators.Launch(4, rows=128)
    monkeypatch.setattr(operators, "LAUNCHES", dict.fromkeys(operators.LAUNCHES, launch))


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


def mask_of(saved: list[Tensor], rate: float) -> Tensor:
    """What the backward kernel keeps of y."""
    normed, inverse, seed = (tensor.detach() for tensor in saved)
    _, of_y, _ = operators.residual_norm_backward(
        torch.randn_like(normed), normed, torch.ones(normed.size(1)), inverse, seed, rate
    )
    return of_y != 0


def test_attention_in_float16() -> None:
    """Products have the type of their inputs. The interpreter has no products of bfloat16."""
    torch.manual_seed(0)
    sentences = (QUERIES.sentences, KEYS.sentences)
    packed = [torch.randn(QUERIES.sentences.numel(), n * 32).half() for n in (1, 2)]
    gradient = torch.randn(QUERIES.sentences.numel(), 32).half()
    for operator, extra in ((operators.attention, ()), (operators.attention_backward, (gradient,))):
        low = operator(*extra, packed, *sentences, 2, 16, False)
        wide = [product.float() for product in packed]
        extra = tuple(tensor.float() for tensor in extra)
        expected = operator(*extra, wide, *sentences, 2, 16, False)
        pairs = zip(low, expected, strict=True) if extra else [(low, expected)]
        for mine, other in pairs:
            assert mine.dtype == torch.float16
            close(mine.float(), other, 2e-3)


@pytest.mark.parametrize("rate", [0.0, 0.4])
def test_residual_norm(rate: float) -> None:
    """With rows that do not fill a tile, and several tiles a program."""
    torch.manual_seed(0)
    N, C = 21, 32
    x, y, gradient = torch.randn(3, N, C).unbind()
    tensors = [x, y, torch.randn(C), torch.randn(C)]
    inputs = [tensor.clone().requires_grad_() for tensor in tensors]
    output, *saved = operators.residual_norm(*inputs, rate, 1e-5)
    others = [tensor.clone().requires_grad_() for tensor in tensors]
    total = others[0] + others[1] * mask_of(saved, rate) / (1 - rate)
    expected = F.layer_norm(total, (C,), others[2], others[3], 1e-5)
    close(output, expected)
    gradients = torch.autograd.grad(output, inputs, gradient)
    for number, other in enumerate(torch.autograd.grad(expected, others, gradient)):
        close(gradients[number], other, 1e-5 if number < 2 else 1e-4)


def test_masks_of_dropout() -> None:
    """Each call draws another, by PyTorch's generator, with the given share in every column."""
    masks = []
    for seed in (1, None, 1):
        if seed is not None:
            torch.manual_seed(seed)
        x, ones = torch.zeros(64, 32), torch.ones(64, 32)
        _, *saved = operators.residual_norm(x, ones + x, ones[0], x[0], 0.25, 1e-5)
        masks.append(mask_of(saved, 0.25).double())
    assert not torch.equal(masks[0], masks[1])
    # Between them, `kept` draws gradients: the seed alone decides.
    assert torch.equal(masks[0], masks[2])
    assert masks[0].mean().item() == pytest.approx(0.75, abs=0.04)
    assert masks[0].mean(0).min() > 0.5
    assert masks[0].mean(1).min() > 0.4
    equal = (masks[0][1:] == masks[0][:-1]).double().mean().item()
    assert equal == pytest.approx(0.625, abs=0.05)  # of neighbours, by chance


def test_a_mask_that_drops_too_much_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Though both ways have the same mask, which PyTorch's lines get."""
    dropout = operators._dropout
    monkeypatch.setattr(operators, "_dropout", lambda rate: (dropout(0.5)[0], dropout(rate)[1]))
    for rate, trouble in ((0.5, ""), (0.3, "its results differ from PyTorch's")):
        pairs = checks.check_residual(Residual(32, rate, pre_norm=False), CPU)
        assert checks.failure(pairs, CPU) == trouble


def test_relu_backward() -> None:
    torch.manual_seed(0)
    output, gradient = torch.randn(21, 24).relu(), torch.randn(21, 24)
    ours, bias = operators.relu_backward(gradient, output)
    expected = gradient * (output > 0)
    assert torch.equal(ours, expected)
    close(bias, expected.sum(0), 1e-4)


@pytest.mark.parametrize("V", [40, 64, 65])
def test_cross_entropy(V: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In blocks of 32 columns, of which the last is not full."""
    monkeypatch.setattr(operators, "LOGITS", 32)
    torch.manual_seed(0)
    logits, targets = 5 * torch.randn(7, V), torch.randint(V, (7,))
    expected = logits.clone()
    ours = operators.cross_entropy(logits, targets, 0.1)
    for mine, other in zip(ours, to_gradient(expected, targets, 0.1), strict=True):
        close(mine, other)
    close(logits, expected)


def model() -> Any:
    torch.manual_seed(1)
    sizes = {"num_layers": 1, "d_model": 32, "d_ff": 64, "num_heads": 2, "dropout": 0.0}
    config = resolve(TrainingConfig, sizes)
    return build(
        config["model"],
        attention=config["attention"],
        source_vocabulary_size=50,
        target_vocabulary_size=50,
        shared_vocabulary=True,
    )


@pytest.mark.usefixtures("_few_tiles")
@pytest.mark.parametrize("compiled", [False, True])
def test_a_model_by_kernels(compiled: bool) -> None:
    """The loss and every gradient of bins, and what the doctor says."""
    discover()
    batch = binned(ragged([[5, 6, 7, 8], [9, 10]]), ragged([[5, 6, 7], [9, 10, 12]]))
    losses, gradients = [], []
    for by_kernels in (True, False):
        ours, criterion = model(), LabelSmoothedCrossEntropy(LabelSmoothingConfig())
        computing = Fast(CPU)
        if by_kernels:
            computing.kernels = computing.check_kernels(ours, criterion, "float32")
            assert list(computing.kernels) == ["attention", "residual connections", "ReLU", "loss"]
            assert set(computing.kernels.values()) == {""}
        computing.fit(ours, criterion)
        for layer in chain.from_iterable(ours.stacks()) if compiled and by_kernels else ():
            layer.compile(dynamic=True, backend="aot_eager", fullgraph=True)
        losses.append(criterion(ours, batch).total)
        gradients.append(torch.autograd.grad(losses[-1], list(ours.parameters())))
    close(*losses)
    for mine, other in zip(*gradients, strict=True):
        close(mine, other, 1e-4)


@pytest.mark.usefixtures("_few_tiles")
def test_a_run_by_kernels_resumes_bit_for_bit(
    tiny_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With dropout. It goes on with the kernels, which it then does not ask for."""
    like_a_gpu(monkeypatch)
    figures = {"loss": 1.0, "nll": 1.0, "perplexity": 2.7}
    monkeypatch.setattr(validation, "validation_loss", lambda *_: figures)
    settings = {"d_model": 32, "dropout": 0.3, "micro_batches": 1, "batch_tokens": 100}
    run(tiny_data, tmp_path / "whole", max_steps=2, **settings)
    for steps in (1, 2):
        run(tiny_data, tmp_path / "parts", max_steps=steps, **settings)
    whole, parts = (load_weights(checkpoint.locate(tmp_path / name)) for name in ("whole", "parts"))
    assert all(torch.equal(parts[name], weight) for name, weight in whole.items())
    config = json.loads((tmp_path / "parts" / CONFIG).read_text())
    assert config["training"]["kernels"] is True


def test_a_compiler_knows_the_shapes() -> None:
    """What each operator says of its outputs is true."""
    rows, sentences = torch.randn(64, 96), QUERIES.sentences
    x, seed = torch.randn(64, 32), torch.zeros((), dtype=torch.int64)
    attention = ([rows], sentences, sentences, 2, 16, True)
    for operator, arguments in (
        (operators.attention, attention),
        (operators.attention_backward, (x, *attention)),
        (operators.residual_norm, (x, x, x[0], x[1], 0.1, 1e-5)),
        (operators.residual_norm_backward, (x, x, x[0], x[:, 0].contiguous(), seed, 0.1)),
        (operators.relu_backward, (x, x)),
        (operators.cross_entropy, (x.clone(), torch.zeros(64, dtype=torch.int64), 0.1)),
    ):
        checked = ("test_schema", "test_faketensor", "test_autograd_registration")
        torch.library.opcheck(operator, arguments, test_utils=checked)
