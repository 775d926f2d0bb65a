"""The precision of matrix products that a run uses when none is given."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from nmt_cli.device import World, autocast
from nmt_cli.interfaces import Batch, Criterion
from nmt_cli.training.run_directory import CONFIG, read_config

SMALLEST = 1_000_000
"""Parameters of the smallest model for which bfloat16 is tried on a CPU; smaller ones do not gain from it."""
_ROUNDS = 3
_GAIN = 1.1  # that decides for bfloat16


def choose_precision(
    run: Path | None,
    model: Any,
    criterion: Criterion,
    batch: Callable[[], Batch],
    world: World,
    deterministic: bool = False,
) -> str:
    """Return `bfloat16` or `float32`: what the directory of the run has recorded, else what is faster on this device.

    A GPU that has bfloat16 arithmetic is faster with it. A CPU that has it is tried on a batch, unless the choice must
    be `deterministic`: then it is float32. The main rank decides.
    """
    low = False
    if world.is_main:
        if run is not None and (run / CONFIG).exists():
            low = read_config(run)["training"]["precision"] == "bfloat16"
        elif world.device.type == "cuda":
            low = torch.cuda.is_bf16_supported(including_emulation=False)
        elif not deterministic:
            parameters = sum(parameter.numel() for parameter in model.parameters())
            low = parameters >= SMALLEST and bfloat16_in_hardware() and gain(model, criterion, batch()) >= _GAIN
    return "bfloat16" if world.start_any([low])()[0] else "float32"


def bfloat16_in_hardware() -> bool:
    """Return whether the CPU multiplies bfloat16 matrices faster than by converting them."""
    return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()


def gain(model: Any, criterion: Criterion, batch: Batch) -> float:
    """Return how many times as fast as in float32 the forward and backward passes are in bfloat16 on the CPU."""
    fastest = dict.fromkeys(("float32", "bfloat16"), float("inf"))
    for _ in range(_ROUNDS):
        for precision in fastest:
            began = time.perf_counter()
            with autocast(torch.device("cpu"), precision):
                loss = criterion(model, batch)
            loss.total.backward()  # type: ignore[no-untyped-call]
            fastest[precision] = min(fastest[precision], time.perf_counter() - began)
    model.zero_grad(set_to_none=True)
    return fastest["float32"] / fastest["bfloat16"]
