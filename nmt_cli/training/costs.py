"""The cost of a run: estimated as in Table 2, and counted from the model's shapes.

Table 2 estimates training FLOPs as training time x number of devices x the sustained single-precision rate of a device.
Model-FLOP utilisation is the share of the counted FLOPs in what the devices could have done at their peak rate for the
precision of the matrix products.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from nmt_cli.training.state import Totals

PAPERS_GPUS = ("K80", "K40", "M40", "P100")
"""Their rates are sustained ones in single precision, from the paper (footnote to section 6.1)."""

_TABLE = Path(__file__).with_name("rates.tsv").read_text(encoding="utf-8")
PUBLISHED_RATES = {
    model: (float(single), float(half))
    for model, single, half in (line.split("\t") for line in _TABLE.splitlines()[1:])
}
"""TFLOP/s: the paper's rates; peaks from data sheets in float32 without tensor cores, and in bfloat16 or float16."""

PRODUCT_SIZES = {"cpu": 1024, "cuda": 8192}
"""Rows of the square matrices of the benchmark, by device type; one product takes about a millisecond."""

_IGNORED_WORDS = re.compile(r"nvidia|tesla|geforce|sxm\d*|pcie|hbm\w*|\d+gb")
"""Words of a GPU's name that do not change its rate: maker, socket, memory."""


@dataclass(frozen=True)
class Rates:
    """TFLOP/s of one device, and where the figures are from."""

    sustained: float  # single precision, for the cost as in Table 2
    peak: float  # at the precision of the run's matrix products, for the utilisation
    source: str


@dataclass(frozen=True)
class CostMeter:
    """The devices of this process group. A resumed run may have others; its sums keep what was spent before."""

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


def utilisation(totals: Totals) -> float | None:
    return totals.flops / totals.possible_flops if totals.flops and totals.possible_flops else None


def device_rates(device: torch.device, precision: str, sustained: float | None, peak: float | None) -> Rates:
    """Return the rates of `device`: those given (in TFLOP/s), else published, else measured."""
    if sustained is not None and peak is not None:
        return Rates(sustained, peak, "given by flags")
    products: torch.dtype = getattr(torch, precision)
    known = published_rates(torch.cuda.get_device_name(device), products) if device.type == "cuda" else None
    if known is None:
        single = measured_rate(device, torch.float32)
        low = single if products == torch.float32 else measured_rate(device, products)
        known = Rates(single, low, "measured on a matrix product")
    if sustained is None and peak is None:
        return known
    return Rates(sustained or known.sustained, peak or known.peak, f"given by flags, else {known.source}")


def published_rates(name: str, products: torch.dtype) -> Rates | None:
    """Return the published rates of the GPU `name`, or None if it is not listed.

    Every word of the name must be known: with "Ti", "Laptop" or a MIG profile it is another device.
    """
    words = set(re.findall(r"\w+", name.lower()))
    for model in sorted(PUBLISHED_RATES, key=lambda model: len(model.split()), reverse=True):
        own = set(model.lower().split())
        if own <= words and all(_IGNORED_WORDS.fullmatch(word) for word in words - own):
            single, low = PUBLISHED_RATES[model]
            source = f"the paper's rate of a {model}" if model in PAPERS_GPUS else f"published peaks of {model}"
            return Rates(single, single if products == torch.float32 else low, source)
    return None


def measured_rate(device: torch.device, products: torch.dtype, rounds: int = 6) -> float:
    """Return the TFLOP/s of a square matrix product, the fastest of `rounds`."""
    size = PRODUCT_SIZES[device.type]
    generator = torch.Generator(device).manual_seed(0)  # GPUs are faster on equal numbers
    left, right = (torch.rand(size, size, generator=generator, device=device).to(products) for _ in range(2))
    seconds = []
    with torch.no_grad():
        for _ in range(rounds):
            began = time.perf_counter()
            torch.mm(left, right)[0, 0].item()  # waits for the device
            seconds.append(time.perf_counter() - began)
    return 2 * size**3 / min(seconds) / 1e12
