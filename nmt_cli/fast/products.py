"""Products with frozen weights, in the arithmetic that decoding asks for.

float32 and bfloat16 weights are laid out once for oneDNN, which on a CPU is faster than the product
of training. int8 rounds weights once, and activations on the fly: each row has its own scale, so no
row depends on the others.
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

SMALL = 1 << 18
"""Elements of an int8 matrix up to which a product without packing is faster: it costs less per
call.
"""
WIDE, FEW = 4096, 64
"""With so many outputs, or AMX, oneDNN is faster than FBGEMM for more than `FEW` rows of an int8
product.
"""

# [M, inputs] -> [M, outputs], of the same type, float32 or bfloat16.
Product = Callable[[Tensor], Tensor]


def frozen_linear(
    weight: Tensor, bias: Tensor | None = None, dtype: str = "float32", activation: str = "none"
) -> Product:
    """Return the function x -> activation(x weight^T + bias).

    Args:
        weight, bias: [outputs, inputs] and [outputs]; copied.
        dtype: float32, bfloat16 or int8.
        activation: none, or one of `sublayer.ACTIVATIONS`.

    Raises:
        UsageError: `weight` is on a device without int8 products.
    """
    weight, bias = weight.detach(), None if bias is None else bias.detach().clone()
    x86 = weight.device.type == "cpu" and platform.machine() in ("x86_64", "AMD64")
    onednn = x86 and torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    if dtype == "int8":
        if not onednn:
            place = (
                f"a CPU of type {platform.machine()}"
                if weight.device.type == "cpu"
                else weight.device
            )
            raise UsageError(
                f"--dtype int8 needs an x86 CPU with oneDNN, not {place}: use bfloat16 or float32"
            )
        return _int8(weight, bias, activation)
    packs = onednn and (dtype == "float32" or torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return (_packed if packs else _plain)(weight, bias, getattr(torch, dtype), activation)


def _activated(y: Tensor, activation: str) -> Tensor:
    return y if activation == "none" else ACTIVATIONS[activation](y)


def _plain(weight: Tensor, bias: Tensor | None, dtype: torch.dtype, activation: str) -> Product:
    weight, bias = weight.to(dtype, copy=True), None if bias is None else bias.to(dtype)

    def product(x: Tensor) -> Tensor:
        return _activated(F.linear(x.to(dtype), weight, bias).to(x.dtype), activation)

    return product


def _packed(weight: Tensor, bias: Tensor | None, dtype: torch.dtype, activation: str) -> Product:
    if activation == "squared_relu":  # oneDNN has no product with it
        relu = _packed(weight, bias, dtype, "relu")
        return lambda x: relu(x).square_()
    weight, bias = weight.to(dtype), None if bias is None else bias.to(dtype)
    packed = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous())
    linear, algorithm = (
        torch.ops.mkldnn._linear_pointwise.default,
        "none" if activation == "gelu" else "",
    )
    if dtype == torch.float32:
        return lambda x: linear(x, packed, bias, activation, [], algorithm)
    return lambda x: linear(x.to(dtype), packed, bias, activation, [], algorithm).to(x.dtype)


def _int8(weight: Tensor, bias: Tensor | None, activation: str) -> Product:
    # Without VNNI, pairs of products of unsigned activations are added in 16 bits, which those of 7
    # bits cannot overflow. `_int_mm` always takes 8.
    vnni = torch.cpu._is_vnni_supported()
    levels = torch.tensor(127.0 if vnni else 63.0)
    scales = (weight.abs().amax(dim=1) / 127).clamp(min=torch.finfo(torch.float32).tiny)
    integers = (weight / scales[:, None]).round().to(torch.int8)
    small = vnni and weight.numel() <= SMALL
    multiply = (_small_int8 if small else _large_int8)(
        integers, scales / levels, zero=128 if vnni else 64
    )

    def product(x: Tensor) -> Tensor:
        # A row of zeros gives NaN below, and zeros again at the end.
        largest = x.abs().amax(dim=1, keepdim=True)
        y = multiply((x * (levels / largest)).round_())
        return _activated(
            y.mul_(largest) if bias is None else torch.addcmul(bias, y, largest), activation
        )

    return product


def _small_int8(integers: Tensor, scales: Tensor, zero: int) -> Product:
    """Return x -> x integers^T * scales for x [M, inputs] of whole numbers."""
    return lambda x: torch._int_mm(x.to(torch.int8), integers.T) * scales


def _large_int8(integers: Tensor, scales: Tensor, zero: int) -> Product:
    """As `_small_int8`, by FBGEMM or oneDNN, which take unsigned integers: x is moved by `zero`."""
    points = torch.zeros(len(integers), dtype=torch.long)
    with warnings.catch_warnings(
        action="ignore"
    ):  # torch 2.13 means to replace such tensors; FBGEMM takes no others
        quantised = torch._make_per_channel_quantized_tensor(integers, scales.double(), points, 0)
    weight = torch.ops.quantized.linear_prepack(quantised, None)
    linear = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32.default
    if len(integers) < WIDE and not torch.cpu._is_amx_tile_supported():
        return lambda x: linear(x, 1.0, zero, weight)
    packed, zeros = (
        torch.ops.onednn.qlinear_prepack(integers, None),
        torch.zeros(len(integers), dtype=torch.int32),
    )
    onednn = torch.ops.onednn.qlinear_pointwise.default

    def multiply(x: Tensor) -> Tensor:
        if len(x) <= FEW:
            return linear(x, 1.0, zero, weight)
        moved = x.add_(zero).to(torch.uint8)
        return onednn(
            moved, 1.0, zero, packed, scales, zeros, None, 1.0, 0, torch.float32, "none", [], ""
        )

    return multiply
