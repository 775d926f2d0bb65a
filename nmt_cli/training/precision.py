"""The precision of matrix products for `--precision auto`."""

from __future__ import annotations

from typing import Any

import torch

from nmt_cli.distributed import World

SMALLEST = 1_000_000  # parameters of the smallest model that uses bfloat16 on a CPU; smaller ones do not gain from it


def choose_precision(model: Any, world: World, deterministic: bool = False) -> str:
    """Return `bfloat16` or `float32`, by the device of the main rank: bfloat16 where it has its arithmetic.

    On a CPU not for small models, and not if the bits must be the same on every CPU (`deterministic`).
    """
    if world.device.type == "cuda":
        low = torch.cuda.is_bf16_supported(including_emulation=False)
    else:
        low = bfloat16_in_hardware() and not deterministic and sum(p.numel() for p in model.parameters()) >= SMALLEST
    return "bfloat16" if world.start_any([world.is_main and low])()[0] else "float32"


def bfloat16_in_hardware() -> bool:
    """Return whether the CPU multiplies bfloat16 matrices faster than by converting them."""
    return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
