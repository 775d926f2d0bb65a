"""The cost of a run: estimated as in Table 2, and counted from the model's shapes.

Table 2 estimates training FLOPs as training time x number of devices x the sustained
single-precision rate of a device. Model-FLOP utilisation is the share of the counted FLOPs in what
the devices could have done at their peak rate for the precision of the matrix products.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from nmt_cli.data.corpus import Indices
from nmt_cli.model import Model
from nmt_cli.training.state import Totals

PAPERS_RATES = {"K80": 2.8, "K40": 3.7, "M40": 6.0, "P100": 9.5}
"""Sustained TFLOP/s of GPUs in single precision (footnote to section 6.1)."""

PRODUCT_SIZES = {"cpu": 1024, "cuda": 8192}
"""Rows of the square matrices of the benchmark, by device type; one product takes about a
millisecond.
"""


@dataclass(frozen=True)
class Rates:
    """TFLOP/s of one device, and where the figures are from."""

    sustained: float  # single precision, for the cost as in Table 2
    peak: float  # at the precision of the run's matrix products, for the utilisation
    source: str


@dataclass(frozen=True)
class CostMeter:
    """The devices of this process group. A resumed run may have others; its sums keep what was
    spent before.
    """

    rates: Rates  # of one device
    devices: int

    def of(self, seconds: float) -> Totals:
        device_seconds = seconds * self.devices
        return Totals(
            seconds=seconds,
            device_seconds=device_seconds,
            flops_as_table2=device_seconds * self.rates.sustained * 1e12,
            possible_flops=device_seconds * self.rates.peak * 1e12,
        )

    def describe(self, total: Totals) -> dict[str, Any]:
        """Return the current devices, and the device-hours and mean rates of the whole run."""
        whole = total if total.device_seconds else self.of(1.0)
        return {
            "devices": self.devices,
            "device_hours": total.device_seconds / 3600,
            "sustained_tflops_of_a_device": whole.flops_as_table2 / whole.device_seconds / 1e12,
            "peak_tflops_of_a_device": whole.possible_flops / whole.device_seconds / 1e12,
            "origin_of_these_rates": self.rates.source,
        }


def flops_of_update(model: Model, lengths: tuple[Indices, Indices]) -> Mapping[str, float]:
    """Return the FLOPs of an update by part of the model, for sources and targets of these lengths.

    There are none if parameters are frozen, whose products are made in part only, or if the model
    does not count them.
    """
    frozen = any(not parameter.requires_grad for parameter in model.parameters())
    return {} if frozen else model.training_flops(*lengths)


def utilisation(totals: Totals) -> float | None:
    return totals.flops / totals.possible_flops if totals.flops and totals.possible_flops else None


def device_rates(
    device: torch.device, precision: str, sustained: float | None, peak: float | None
) -> Rates:
    """Return the rates of `device`: those given (in TFLOP/s), else the paper's, else measured."""
    if sustained is not None and peak is not None:
        return Rates(sustained, peak, "given by flags")
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else ""
    models = [model for model in PAPERS_RATES if model in re.split(r"\W+", name)]
    if models:
        single = low = PAPERS_RATES[models[0]]
        source = f"the paper's rate of a {models[0]}"
    else:
        single = measured_rate(device, torch.float32)
        low = single if precision == "float32" else measured_rate(device, getattr(torch, precision))
        source = "measured on a matrix product"
    if sustained is not None or peak is not None:
        source = f"given by flags, else {source}"
    return Rates(sustained or single, peak or low, source)


def measured_rate(device: torch.device, products: torch.dtype, rounds: int = 6) -> float:
    """Return the TFLOP/s of a square matrix product, the fastest of `rounds`."""
    size = PRODUCT_SIZES[device.type]
    generator = torch.Generator(device).manual_seed(0)  # GPUs are faster on equal numbers
    left, right = (
        torch.rand(size, size, generator=generator, device=device).to(products) for _ in range(2)
    )
    seconds = []
    with torch.no_grad():
        for _ in range(rounds):
            began = time.perf_counter()
            torch.mm(left, right)[0, 0].item()  # waits for the device
            seconds.append(time.perf_counter() - began)
    return 2 * size**3 / min(seconds) / 1e12
