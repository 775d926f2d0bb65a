"""A kernel that does not work, or that no model has, is replaced by PyTorch's lines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from nmt_cli.criteria.label_smoothed_cross_entropy import LabelSmoothedCrossEntropy
from nmt_cli.criteria.settings import LabelSmoothingConfig
from nmt_cli.device import UNFIT
from nmt_cli.fast.cuda import checks, operators
from nmt_cli.fast.cuda.bins import binned
from nmt_cli.fast.cuda.device import Fast
from nmt_cli.interfaces import Criterion, ragged
from nmt_cli.models.transformer import Transformer

CPU = torch.device("cpu")
PARTS = ["attention", "residual connections", "ReLU", "loss"]
BATCH = binned(ragged([[5, 6, 7, 8], [9, 10]]), ragged([[5, 6, 7], [9, 10, 12]]))


@pytest.fixture
def criterion() -> LabelSmoothedCrossEntropy:
    return LabelSmoothedCrossEntropy(LabelSmoothingConfig())


def test_without_triton_the_plain_lines_compute(
    build: Callable[..., Transformer], criterion: LabelSmoothedCrossEntropy
) -> None:
    """A CPU has no kernels, with Triton or without. The generator is left as it was."""
    model = build(d_model=32, num_heads=2)
    plain = Fast(CPU)
    plain.fit(model, criterion)
    expected = criterion(model, BATCH).total
    model = build(d_model=32, num_heads=2)
    before = torch.get_rng_state()
    computing = Fast(CPU)
    computing.kernels = computing.check_kernels(model, criterion, "float32")
    assert torch.equal(torch.get_rng_state(), before)
    assert list(computing.kernels) == PARTS
    assert all("Error: " in trouble for trouble in computing.kernels.values())
    computing.fit(model, criterion)
    assert torch.equal(criterion(model, BATCH).total, expected)


@pytest.mark.parametrize(
    ("changed", "trouble"), [(1.0, ""), (1.2, "its results differ from PyTorch's")]
)
@pytest.mark.parametrize("changes_bias", [False, True])
def test_a_kernel_that_computes_something_else(
    build: Callable[..., Transformer],
    monkeypatch: pytest.MonkeyPatch,
    changed: float,
    trouble: str,
    changes_bias: bool,
) -> None:
    def relu_backward(gradient: Tensor, output: Tensor) -> tuple[Tensor, Tensor]:
        gradient = gradient * (output > 0)
        bias_gradient = gradient.sum(0)
        if changes_bias:
            return gradient, changed * bias_gradient
        return changed * gradient, bias_gradient

    monkeypatch.setattr(operators, "relu_backward", relu_backward)
    model = build(d_model=32, dropout=0.3)
    assert checks.kernels_of_update(model, Criterion(), CPU, "bfloat16")["ReLU"] == trouble


def test_numbers_that_are_none_are_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = [(torch.full((2,), torch.nan), torch.zeros(2))]
    assert checks.failure(pairs, CPU) == "its results differ from PyTorch's"
    assert checks.failure([(torch.zeros(2), torch.zeros(2))], CPU) == ""


@pytest.mark.parametrize(
    ("settings", "unfit"),
    [
        ({}, []),
        ({"norm": "pre"}, ["residual connections"]),
        ({"d_model": 48, "d_k": 32, "d_v": 32}, ["residual connections"]),
        ({"d_k": 32, "d_v": 16}, ["attention"]),
        ({"d_k": 48, "d_v": 48}, ["attention"]),
        ({"attention_dropout": 0.1}, ["attention"]),
        ({"query_key_norm": True}, ["attention"]),
        ({"activation": "gelu"}, ["ReLU"]),
        ({"gated_feed_forward": True}, ["ReLU"]),
    ],
)
def test_a_model_without_a_kernel(
    build: Callable[..., Transformer],
    criterion: LabelSmoothedCrossEntropy,
    monkeypatch: pytest.MonkeyPatch,
    settings: dict[str, Any],
    unfit: list[str],
) -> None:
    monkeypatch.setattr(checks, "failure", lambda *_: "")
    model = build(**{"d_model": 32, "num_heads": 2, **settings})
    kernels = checks.kernels_of_update(model, criterion, CPU, "float32")
    assert kernels == {part: UNFIT if part in unfit else "" for part in PARTS}


def test_attention_in_float32_does_not_fit_a_gpu(
    build: Callable[..., Transformer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "failure", lambda *_: "")
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: True)
    model = build(d_model=32, num_heads=2)
    for device, precision, expected in (
        ("cuda", "float32", UNFIT),
        ("cuda", "bfloat16", ""),
        ("cpu", "float32", ""),
    ):
        kernels = checks.kernels_of_update(model, Criterion(), torch.device(device), precision)
        assert kernels["attention"] == expected
        assert "loss" not in kernels  # of another criterion


def test_a_gpu_without_bfloat16(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: False)
    kernels = checks.kernels_of_update(None, None, torch.device("cuda"), "float16")
    assert kernels == dict.fromkeys(PARTS, UNFIT)
