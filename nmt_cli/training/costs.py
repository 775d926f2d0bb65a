"""What a run costs: as Table 2 counts it, and counted from the model's shapes.

Table 2 estimates training FLOPs as training time x number of devices x the sustained single-precision rate of the
device.
Beside it stand the operations that the model really asks for, and the model-FLOP utilisation: their rate over the
device's peak rate for the products' precision.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import torch

from nmt_cli.device import World, autocast

PAPERS_RATES = {"K80": 2.8, "K40": 3.7, "M40": 6.0, "P100": 9.5}
"""Sustained single-precision TFLOP/s by which the paper reckons (its footnote to section 6.1)."""

DATASHEET_RATES = {
    # name: (single precision without tensor cores, bfloat16 or float16 with them, dense), TFLOP/s
    "H200": (67.0, 989.0),
    "H100 PCIe": (51.0, 756.0),
    "H100": (67.0, 989.0),
    "A100": (19.5, 312.0),
    "L40": (90.5, 181.0),
    "L4": (30.3, 121.0),
    "A10": (31.2, 125.0),
    "V100": (15.7, 125.0),
    "T4": (8.1, 65.0),
}
"""Peaks that the makers publish, the more special name first."""


@dataclass(frozen=True)
class Rates:
    """TFLOP/s of one device, and where the figures come from."""

    sustained: float  # single precision, for the reckoning of Table 2
    peak: float  # at the precision of the run's products, for utilisation
    origin: str


def device_rates(world: World, precision: str, sustained: float | None, peak: float | None) -> Rates:
    """The rates of this run's devices: as given, else as published, else measured now."""
    if sustained and peak:
        return Rates(sustained, peak, "given by flags")
    known = published_rates(world, precision)
    if known is None:
        measured = measured_rate(world.device, precision)
        known = Rates(measured_rate(world.device, "float32"), measured, "measured on a matrix product")
    if sustained is None and peak is None:
        return known
    return Rates(sustained or known.sustained, peak or known.peak, f"given by flags, else {known.origin}")


def published_rates(world: World, precision: str) -> Rates | None:
    """What is published of this GPU; nothing for CPUs and for GPUs that the tables lack."""
    if world.device.type != "cuda":
        return None
    name = torch.cuda.get_device_name(world.device)
    for model, rate in PAPERS_RATES.items():
        if model in name:
            return Rates(rate, rate, f"the paper's rate of a {model}")
    for model, (single, low) in DATASHEET_RATES.items():
        if model in name:
            return Rates(single, single if precision == "float32" else low, f"published peaks of {model}")
    return None


def measured_rate(device: torch.device, precision: str, size: int = 1024, rounds: int = 5) -> float:
    """TFLOP/s of a square matrix product, the fastest of several: other work on the machine only slows it."""
    left, right = torch.ones(size, size, device=device), torch.ones(size, size, device=device)
    seconds = []
    with torch.no_grad(), autocast(device, precision):
        for _ in range(rounds + 1):
            began = time.perf_counter()
            float(torch.mm(left, right)[0, 0])
            seconds.append(time.perf_counter() - began)
    return 2 * size**3 / min(seconds) / 1e12


@dataclass(frozen=True)
class CostMeter:
    """Turns counters into the figures of a report."""

    rates: Rates
    devices: int

    def utilisation(self, flops: float, seconds: float) -> float | None:
        """Model FLOPs done over what the devices could have done at their peak."""
        return flops / (seconds * self.devices * self.rates.peak * 1e12) if flops and seconds else None

    def as_table2(self, seconds: float) -> float:
        """Training time x devices x sustained rate."""
        return seconds * self.devices * self.rates.sustained * 1e12

    def describe(self) -> dict[str, Any]:
        """The rates behind the figures."""
        return {
            "devices": self.devices,
            "sustained_tflops_of_a_device": self.rates.sustained,
            "peak_tflops_of_a_device": self.rates.peak,
            "origin_of_these_rates": self.rates.origin,
        }


def memory_estimate(model: Any, tokens: int, length: int) -> dict[str, int]:
    """Bytes that training takes, roughly (float32): what Adam keeps is exact, activations are an estimate.

    Args:
        tokens: source tokens, and target tokens, of one micro-batch.
        length: tokens of a sentence, on which the matrices of attention depend.
    """
    parameters = sum(parameter.numel() for parameter in model.parameters())
    widths = [parameter.shape[0] for parameter in model.parameters() if parameter.dim() == 2]
    products = sum(widths) - sum(width for width in widths if width == model.vocabulary_size)
    # Each matrix product keeps its output, and what stands around it (normalisation, dropout, sum) about as much again;
    # attention keeps its weights and their dropout: one row of `length` for each head of each attention.
    config = getattr(model, "config", None)
    heads = getattr(config, "num_heads", 0) * getattr(config, "num_layers", 0) * 3
    activations = 4 * tokens * (2 * products + 2 * heads * length)
    logits = 4 * 3 * min(tokens, 4096) * model.vocabulary_size
    states = {"weights": 4 * parameters, "gradients": 4 * parameters, "optimizer": 8 * parameters}
    return {**states, "activations": activations, "logits": logits, "total": 16 * parameters + activations + logits}
