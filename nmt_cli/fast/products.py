"""Products with frozen weights, in the arithmetic that decoding asks for.

float32 and bfloat16 weights are laid out once for oneDNN, which on a CPU is faster than the product
of training. int8 rounds weights once, and activations on the fly. Each row has a scale, so no row
depends on the others.
"""

from __future__ import annotations

import platform
import warnings
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from nmt_cli.errors import UsageError
from nmt_cli.layers.sublayer import ACTIVATIONS

WIDE = 4096
"""Outputs of an int8 matrix from which oneDNN is faster than FBGEMM, with VNNI. With AMX it always
is."""

FEW = 7
"""Rows of such a product up to which FBGEMM is faster in any case."""

Product = Callable[[Tensor], Tensor]
"""[M, inputs] -> [M, outputs], of the same type."""


def frozen_linear(
    weight: Tensor, bias: Tensor | None = None, dtype: str = "float32", activation: str = "none"
) -> Product:
    """Return the function x -> activation(x weight^T + bias).

    Args:
        weight, bias: [outputs, inputs] and [outputs], which are copied.
        dtype: float32, bfloat16, float16 or int8.
        activation: none, or one of `sublayer.ACTIVATIONS`.

    Raises:
        UsageError: `weight` is on a device without int8 products.
    """
    weight = weight.detach()
    if bias is not None:
        bias = bias.detach().clone()
    on_cpu = weight.device.type == "cpu"
    on_x86 = on_cpu and platform.machine() in ("x86_64", "AMD64")
    has_onednn = on_x86 and torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    if dtype == "int8":
        if not has_onednn:
            place = f"a CPU of type {platform.machine()}" if on_cpu else weight.device
            raise UsageError(
                f"--dtype int8 needs an x86 CPU with oneDNN, not {place}: use bfloat16 or float32"
            )
        return _int8(weight, bias, activation)
    low = getattr(torch, dtype)
    if has_onednn and (dtype == "float32" or torch.ops.mkldnn._is_mkldnn_bf16_supported()):
        return _packed(weight, bias, low, activation)
    return _plain(weight, bias, low, activation)


def _activated(y: Tensor, activation: str) -> Tensor:
    if activation == "none":
        return y
    return ACTIVATIONS[activation](y)


def _plain(weight: Tensor, bias: Tensor | None, dtype: torch.dtype, activation: str) -> Product:
    weight = weight.to(dtype, copy=True)
    if bias is not None:
        bias = bias.to(dtype)
    return lambda x: _activated(F.linear(x.to(dtype), weight, bias).to(x.dtype), activation)


def _packed(weight: Tensor, bias: Tensor | None, dtype: torch.dtype, activation: str) -> Product:
    if activation == "squared_relu":  # oneDNN has no product with it
        relu = _packed(weight, bias, dtype, "relu")
        return lambda x: relu(x).square_()
    if bias is not None:
        bias = bias.to(dtype)
    packed = torch.ops.mkldnn._reorder_linear_weight(weight.to(dtype).contiguous())
    linear = torch.ops.mkldnn._linear_pointwise.default
    algorithm = "none" if activation == "gelu" else ""  # "none": by the error function, not by tanh
    return lambda x: linear(x.to(dtype), packed, bias, activation, [], algorithm).to(x.dtype)


def _int8(weight: Tensor, bias: Tensor | None, activation: str) -> Product:
    scales = (weight.abs().amax(dim=1) / 127).clamp(min=torch.finfo(torch.float32).tiny)
    integers = (weight / scales[:, None]).round().to(torch.int8)
    multiply = _by_integers(integers, scales)

    def product(x: Tensor) -> Tensor:
        # A row of zeros gives NaN below, and zeros again when it is multiplied by 0 at the end.
        largest = x.abs().amax(dim=1, keepdim=True)  # [M, 1]
        y = multiply(x / largest)
        y = y.mul_(largest) if bias is None else torch.addcmul(bias, y, largest)
        return _activated(y, activation)

    return product


def _by_integers(integers: Tensor, scales: Tensor) -> Product:
    """Return x -> x (integers * scales)^T for x [M, inputs] from -1 to 1, which is rounded.

    FBGEMM and oneDNN take unsigned integers of x, which are moved by `zero`.
    """
    # Without VNNI, FBGEMM adds pairs of products in 16 bits. Activations of 7 bits cannot overflow.
    vnni = torch.cpu._is_vnni_supported()
    zero = 128 if vnni else 64
    level = 1 / (zero - 1)
    points = torch.zeros(len(integers), dtype=torch.long)
    # torch 2.13 warns that such tensors will be replaced. FBGEMM takes no others.
    with warnings.catch_warnings(action="ignore"):
        quantised = torch._make_per_channel_quantized_tensor(integers, scales.double(), points, 0)
    weight = torch.ops.quantized.linear_prepack(quantised, None)
    operation = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32.default._op

    def linear(x: Tensor) -> Tensor:
        # PyTorch asks `weight`, which is no tensor, for a method in place of the operation. That
        # takes as long as a product of a few rows.
        with torch._C.DisableTorchFunction():
            return operation(x, level, zero, weight)

    amx, wide = torch.cpu._is_amx_tile_supported(), len(integers) >= WIDE
    if not amx and not (wide and vnni):
        return linear
    few = FEW if wide else 64
    packed = torch.ops.onednn.qlinear_prepack(integers, None)
    zeros = torch.zeros(len(integers), dtype=torch.int32)
    # As FBGEMM rounds: one factor for a sum, and x is scaled and moved at once.
    factors = scales * level
    steps, middle = torch.tensor(zero - 1.0), torch.tensor(float(zero))
    onednn = torch.ops.onednn.qlinear_pointwise.default

    def multiply(x: Tensor) -> Tensor:
        if len(x) <= few:
            return linear(x)
        moved = torch.addcmul(middle, x, steps).round_().to(torch.uint8)
        return onednn(
            moved, 1.0, zero, packed, factors, zeros, None, 1.0, 0, torch.float32, "none", [], ""
        )

    return multiply
