"""The precision of matrix products that a run uses when none is given."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from nmt_cli.distributed import World
from nmt_cli.training.run_directory import CONFIG, read_config

SMALLEST = 1_000_000  # parameters of the smallest model that uses bfloat16 on a CPU; smaller ones do not gain from it


def choose_precision(run: Path | None, model: Any, world: World, deterministic: bool = False) -> str:
    """Return `bfloat16` or `float32`: what the directory of the run has recorded, else what the device suggests.

    It is bfloat16 where the device has its arithmetic; on a CPU not for small models, and not if the bits must be the
    same on every CPU (`deterministic`). The main rank decides.
    """
    low = False
    if world.is_main:
        if run is not None and (run / CONFIG).exists():
            low = read_config(run)["training"]["precision"] == "bfloat16"
        elif world.device.type == "cuda":
            low = torch.cuda.is_bf16_supported(including_emulation=False)
        elif not deterministic and bfloat16_in_hardware():
            low = sum(parameter.numel() for parameter in model.parameters()) >= SMALLEST
    return "bfloat16" if world.start_any([low])()[0] else "float32"


def bfloat16_in_hardware() -> bool:
    """Return whether the CPU multiplies bfloat16 matrices faster than by converting them."""
    return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
