"""Products with frozen weights, compared with float64.

Those of int8 with integers computed here.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from nmt_cli.errors import UsageError
from nmt_cli.fast import products
from nmt_cli.fast.products import WIDE, frozen_linear

SHAPES = {"small": (24, 40), "large": (520, 512), "wide": (WIDE + 4, 40)}  # [outputs, inputs]
TOLERANCES = {"float32": 1e-6, "bfloat16": 2**-7, "int8": 2**-5}


ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "none": lambda y: y,
    "relu": lambda y: np.maximum(y, 0.0),
    "gelu": lambda y: y * 0.5 * (1.0 + np.vectorize(math.erf)(y / 2**0.5)),
    "swish": lambda y: y * 0.5 * (1.0 + np.tanh(y / 2)),
}
LAYERS = [
    *product(SHAPES, ((True, "relu"), (False, "none"))),
    ("large", (True, "gelu")),
    ("large", (True, "swish")),
]


@pytest.fixture(params=LAYERS, ids=str)
def layer(request: pytest.FixtureRequest) -> tuple[Tensor, Tensor | None, str]:
    """The weight, bias and activation of a layer. Some outputs have no weights but 0."""
    size, (has_bias, activation) = request.param
    torch.manual_seed(0)
    weight = torch.randn(SHAPES[size]) * torch.linspace(0, 3, SHAPES[size][0])[:, None]
    return weight, torch.randn(len(weight)) if has_bias else None, activation


def inputs(weight: Tensor, rows: int = 9) -> Tensor:
    """Rows of different sizes, and one of zeros."""
    x = torch.randn(rows, weight.size(1), generator=torch.Generator().manual_seed(1))
    x *= 10.0 ** torch.linspace(-4, 4, rows)[:, None]
    x[rows // 2] = 0.0
    return x


def exact(x: Tensor, weight: Tensor, bias: Tensor | None, activation: str) -> Any:
    y = x.double().numpy() @ weight.double().numpy().T + (
        0.0 if bias is None else bias.double().numpy()
    )
    return ACTIVATIONS[activation](y)


def by_hand(x: Tensor, weight: Tensor, bias: Tensor | None, activation: str, levels: int) -> Any:
    """x weight^T in integers: weights of 127 levels, inputs of `levels`, a scale for each row."""
    scale = np.maximum(
        np.abs(weight.numpy()).max(axis=1) / np.float32(127), np.finfo(np.float32).tiny
    )
    largest = np.abs(x.numpy()).max(axis=1, keepdims=True)
    shares = x.numpy() / np.where(largest > 0, largest, 1)  # float32
    integers = np.rint(shares * np.float32(levels)).astype(np.int64)
    products = integers @ np.rint(weight.numpy() / scale[:, None]).astype(np.int64).T
    y = products * (largest.astype(np.float64) * scale / levels) + (
        0.0 if bias is None else bias.double().numpy()
    )
    return ACTIVATIONS[activation](y)


def assert_close(actual: Tensor, expected: Any, tolerance: float) -> None:
    """The error is relative to the largest output of a row."""
    assert actual.dtype == torch.float32
    scale = np.abs(expected).max(axis=1, keepdims=True)
    assert (np.abs(actual.double().numpy() - expected) <= tolerance * scale).all()


@pytest.mark.parametrize("dtype", TOLERANCES)
def test_products(layer: Any, dtype: str) -> None:
    weight, bias, activation = layer
    x = inputs(weight)
    before = x.clone()
    y = frozen_linear(weight, bias, dtype, activation)(x)
    assert_close(y, exact(x, weight, bias, activation), TOLERANCES[dtype])
    assert torch.equal(x, before)


@pytest.mark.parametrize("dtype", TOLERANCES)
def test_squared_relu_is_the_square_of_relu(dtype: str) -> None:
    """No product of oneDNN has it. The square changes only the product's own output."""
    torch.manual_seed(0)
    weight, bias = torch.randn(520, 512), torch.randn(520)
    x = inputs(weight)
    squared, plain = (
        frozen_linear(weight, bias, dtype, name)(x) for name in ("squared_relu", "relu")
    )
    assert torch.equal(squared, plain * plain)
    assert plain.any()


@pytest.mark.parametrize("vnni", [True, False])
def test_int8_is_integer_arithmetic(
    layer: Any, vnni: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if vnni and not torch.cpu._is_vnni_supported():
        pytest.skip("needs a CPU with VNNI")
    monkeypatch.setattr(torch.cpu, "_is_vnni_supported", lambda: vnni)
    weight, bias, activation = layer
    x = inputs(weight)
    expected = by_hand(x, weight, bias, activation, levels=127 if vnni else 63)
    assert_close(frozen_linear(weight, bias, "int8", activation)(x), expected, 1e-6)


def test_int8_is_exact_for_integers() -> None:
    """The largest sums, of one sign: where an overflow would be seen."""
    levels = 127 if torch.cpu._is_vnni_supported() else 63
    for outputs, width in SHAPES.values():
        weight, x = torch.full((outputs, width), 127.0), torch.full((5, width), float(levels))
        weight[1::2] *= -1
        x[2::2] *= -1
        assert_close(frozen_linear(weight, dtype="int8")(x), (x @ weight.T).double().numpy(), 1e-6)


def test_int8_without_vnni_does_not_overflow() -> None:
    """A CPU without VNNI, which oneDNN imitates.

    It reads the variable once, so this needs a process of its own.
    """
    code = (
        "import torch; torch.cpu._is_vnni_supported = lambda: False; from nmt_cli.fast.products "
        "import frozen_linear\n"
        f"for outputs, width in {list(SHAPES.values())}:\n"
        "    weight, x = torch.full((outputs, width), 127.0), torch.full((5, width), 63.0)\n"
        "    torch.testing.assert_close(frozen_linear(weight, dtype='int8')(x), x @ weight.T)\n"
    )
    environment = {**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX2"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("rows", [1, 2, 7, 64])
@pytest.mark.parametrize(("size", "amx"), [*product(SHAPES, [False]), ("wide", True)])
def test_a_row_of_int8_does_not_depend_on_the_others(
    size: str, amx: bool, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where oneDNN multiplies many rows and FBGEMM few, as with AMX."""
    if amx:
        monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: True)
    torch.manual_seed(0)
    weight = torch.randn(SHAPES[size])
    multiply = frozen_linear(weight, torch.randn(len(weight)), "int8", activation="relu")
    x = inputs(weight, 70)
    together = multiply(x)
    for start in range(0, 70 - rows + 1, rows):
        assert torch.equal(multiply(x[start : start + rows]), together[start : start + rows])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_packed_and_plain_products_agree(layer: Any, dtype: str) -> None:
    if dtype == "bfloat16" and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        pytest.skip("oneDNN packs no weights in bfloat16 on this CPU")
    weight, bias, activation = layer
    x = inputs(weight)
    results = [
        product(weight, bias, getattr(torch, dtype), activation)(x)
        for product in (products._packed, products._plain)
    ]
    assert_close(results[0], results[1].double().numpy(), TOLERANCES[dtype])


@pytest.mark.parametrize("dtype", [*TOLERANCES, "plain"])
def test_the_weights_are_frozen(layer: Any, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The layer can be trained on, or its memory used for something else."""
    weight, bias, activation = layer
    weight, bias = (
        None if parameter is None else torch.nn.Parameter(parameter.clone())
        for parameter in (weight, bias)
    )
    if dtype == "plain":
        monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    multiply = frozen_linear(weight, bias, "float32" if dtype == "plain" else dtype, activation)
    x = inputs(weight.detach())
    before = multiply(x)
    assert not before.requires_grad
    for parameter in (weight, bias):
        if parameter is not None:
            parameter.data.zero_()
    assert torch.equal(multiply(x), before)


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("size", SHAPES)
def test_a_value_that_is_not_a_number_stays_in_its_row(size: str, dtype: str) -> None:
    """The search finds damaged weights by it."""
    weight = torch.randn(SHAPES[size])
    multiply = frozen_linear(weight, dtype=dtype)
    x = inputs(weight, 3)
    x[0, 5] = torch.nan
    y = multiply(x)
    assert y[0].isnan().all()
    assert y[1:].isfinite().all()


def test_int8_needs_x86(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "arm64")
    with pytest.raises(UsageError, match=r"oneDNN, .*arm64"):
        frozen_linear(torch.ones(2, 2), dtype="int8")
    with pytest.raises(UsageError, match="not meta"):
        frozen_linear(torch.ones(2, 2, device="meta"), dtype="int8")


def test_int8_needs_onednn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    with pytest.raises(UsageError, match=r"--dtype int8.*bfloat16 or float32"):
        frozen_linear(torch.ones(2, 2), dtype="int8")
    assert frozen_linear(torch.eye(2))(torch.ones(1, 2)).tolist() == [[1.0, 1.0]]
