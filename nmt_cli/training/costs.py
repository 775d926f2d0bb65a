"""The cost of a run: estimated as in Table 2, and counted from the model's shapes.

Table 2 estimates training FLOPs as training time x number of devices x the sustained
single-precision rate of a device. Model-FLOP utilisation is the share of the counted FLOPs in what
the devices could have done at their peak rate for the precision of the matrix products.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from nmt_cli.data.corpus import Indices
from nmt_cli.model import Model
from nmt_cli.training.state import Totals

# Sustained TFLOP/s of GPUs in single precision (footnote to section 6.1).
PAPERS_RATES = {"K80": 2.8, "K40": 3.7, "M40": 6.0, "P100": 9.5}

# Rows of the square matrices of the benchmark. One product takes about a millisecond.
PRODUCT_SIZES = {"cpu": 1024, "cuda": 8192}


@dataclass(frozen=True)
class Rates:
    """TFLOP/s of one device, and where the figures are from."""

    sustained: float  # single precision, for the cost as in Table 2
    peak: float  # at the precision of the run's matrix products, for the utilisation
    source: str


@dataclass(frozen=True)
class CostMeter:
    """The devices of this process group.

    A resumed run may have other devices. Its sums keep what was spent on the earlier ones.
    """

    rates: Rates  # of one device
    devices: int

    def of(self, seconds: float) -> Totals:
        """Return the costs of training for so many seconds."""
        device_seconds = seconds * self.devices
        return Totals(
            seconds=seconds,
            device_seconds=device_seconds,
            flops_as_table2=device_seconds * self.rates.sustained * 1e12,
            possible_flops=device_seconds * self.rates.peak * 1e12,
        )

    def describe(self, total: Totals) -> dict[str, Any]:
        """Return the current devices, and the device-hours and mean rates of the whole run."""
        whole = total
        if total.device_seconds == 0:  # nothing was trained: the rates of these devices
            whole = self.of(1.0)
        return {
            "devices": self.devices,
            "device_hours": total.device_seconds / 3600,
            "sustained_tflops_of_a_device": whole.flops_as_table2 / whole.device_seconds / 1e12,
            "peak_tflops_of_a_device": whole.possible_flops / whole.device_seconds / 1e12,
            "origin_of_these_rates": self.rates.source,
        }


def flops_of_update(model: Model, lengths: tuple[Indices, Indices]) -> Mapping[str, float]:
    """Return the FLOPs of an update by part of the model.

    There are none if the model does not count them.

    Args:
        lengths: of the sources and of the targets.
    """
    for parameter in model.parameters():
        if not parameter.requires_grad:  # frozen: not all products of the backward pass are made
            return {}
    source_lengths, target_lengths = lengths
    return model.training_flops(source_lengths, target_lengths)


def utilisation(totals: Totals) -> float | None:
    """Return the share of the counted FLOPs in the possible ones, if they are known."""
    if not totals.flops or not totals.possible_flops:
        return None
    return totals.flops / totals.possible_flops


def device_rates(
    device: torch.device, precision: str, sustained: float | None, peak: float | None
) -> Rates:
    """Return the rates of `device`: given ones (in TFLOP/s), else the paper's, else measured."""
    if sustained is not None and peak is not None:
        return Rates(sustained, peak, "given by flags")
    rates = papers_rates(device)
    if rates is None:
        single = measured_rate(device, torch.float32)
        low = single
        if precision != "float32":
            low = measured_rate(device, getattr(torch, precision))
        rates = Rates(single, low, "measured on a matrix product")
    if sustained is not None:
        rates = replace(rates, sustained=sustained, source=f"given by flags, else {rates.source}")
    if peak is not None:
        rates = replace(rates, peak=peak, source=f"given by flags, else {rates.source}")
    return rates


def papers_rates(device: torch.device) -> Rates | None:
    """Return the rates of `device` if it is one of the paper's GPUs."""
    if device.type != "cuda":
        return None
    words = re.split(r"\W+", torch.cuda.get_device_name(device))
    for name, rate in PAPERS_RATES.items():
        if name in words:
            return Rates(rate, rate, f"the paper's rate of a {name}")
    return None


def measured_rate(device: torch.device, products: torch.dtype, rounds: int = 6) -> float:
    """Return the TFLOP/s of a square matrix product, the fastest of `rounds`."""
    size = PRODUCT_SIZES[device.type]
    generator = torch.Generator(device).manual_seed(0)  # GPUs are faster on equal numbers
    factors = torch.rand(2, size, size, generator=generator, device=device).to(products)
    seconds = []
    with torch.no_grad():
        for _ in range(rounds):
            start = time.perf_counter()
            torch.mm(factors[0], factors[1])[0, 0].item()  # waits for the device
            seconds.append(time.perf_counter() - start)
    return 2 * size**3 / min(seconds) / 1e12
