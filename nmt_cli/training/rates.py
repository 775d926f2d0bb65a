"""How many operations a second a device does: as given, as published, or as measured."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass

import torch

from nmt_cli.device import product_type

PAPERS_RATES = {"K80": 2.8, "K40": 3.7, "M40": 6.0, "P100": 9.5}
"""Sustained single-precision TFLOP/s by which the paper reckons (its footnote to section 6.1)."""

DATASHEET_RATES = {
    "B200": (75.0, 2250.0),
    "H200": (67.0, 989.0),
    "H200 NVL": (60.0, 835.0),
    "H100": (67.0, 989.0),
    "H100 PCIe": (51.0, 756.0),
    "H100 NVL": (60.0, 835.0),
    "A100": (19.5, 312.0),
    "A40": (37.4, 150.0),
    "A10": (31.2, 125.0),
    "L40": (90.5, 181.0),
    "L40S": (91.6, 362.0),
    "L4": (30.3, 121.0),
    "V100": (15.7, 125.0),
    "V100 PCIe": (14.0, 112.0),
    "T4": (8.1, 65.0),
    "RTX 4090": (82.6, 165.0),
    "RTX 3090": (35.6, 71.0),
}
"""Peak TFLOP/s that the maker publishes: single precision without tensor cores, and bfloat16 or float16 with them,
dense, summed in single precision.
"""

PRODUCT_SIZES = {"cpu": 1024, "cuda": 8192}
"""Rows of the square matrices that are multiplied to measure a device: enough to keep it busy for a millisecond."""

_SAYS_NOTHING = re.compile(r"nvidia|tesla|geforce|sxm\d*|pcie|hbm\w*|\d+gb")
"""Words of a GPU's name that leave its rate as it is: maker, socket, memory."""


@dataclass(frozen=True)
class Rates:
    """TFLOP/s of one device, and where the figures come from."""

    sustained: float  # single precision, for the reckoning of Table 2
    peak: float  # at the precision of the run's products, for utilisation
    origin: str


def device_rates(device: torch.device, precision: str, sustained: float | None, peak: float | None) -> Rates:
    """The rates of a run's device: as given (in TFLOP/s), else as published, else measured now."""
    if sustained is not None and peak is not None:
        return Rates(sustained, peak, "given by flags")
    products = product_type(device.type, precision)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else ""
    known = published_rates(name, products) or measured_rates(device, products)
    if sustained is None and peak is None:
        return known
    return Rates(
        known.sustained if sustained is None else sustained,
        known.peak if peak is None else peak,
        f"given by flags, else {known.origin}",
    )


def published_rates(name: str, products: torch.dtype) -> Rates | None:
    """What is published of the GPU that calls itself `name`.

    Nothing where the tables do not know every word of the name: "Ti", "Laptop" or the profile of a slice (MIG) make it
    another device.
    """
    words = set(re.findall(r"\w+", name.lower()))
    for model in sorted(PAPERS_RATES | DATASHEET_RATES, key=lambda model: len(model.split()), reverse=True):
        own = set(model.lower().split())
        if own <= words and all(_SAYS_NOTHING.fullmatch(word) for word in words - own):
            if model in PAPERS_RATES:
                return Rates(PAPERS_RATES[model], PAPERS_RATES[model], f"the paper's rate of a {model}")
            single, low = DATASHEET_RATES[model]
            return Rates(single, single if products == torch.float32 else low, f"published peaks of {model}")
    return None


def measured_rates(device: torch.device, products: torch.dtype) -> Rates:
    """The rates of matrix products; one measurement serves for both where they are float32."""
    sustained = measured_rate(device, torch.float32)
    peak = sustained if products == torch.float32 else measured_rate(device, products)
    return Rates(sustained, peak, "measured on a matrix product")


def measured_rate(device: torch.device, products: torch.dtype, rounds: int = 6) -> float:
    """TFLOP/s of a square matrix product, the fastest of several: other work on the machine only slows it."""
    size = PRODUCT_SIZES[device.type]
    generator = torch.Generator(device).manual_seed(0)  # numbers that differ: of equal ones a GPU multiplies more
    left, right = (torch.rand(size, size, generator=generator, device=device).to(products) for _ in range(2))
    seconds = []
    with torch.no_grad():
        for _ in range(rounds):
            began = time.perf_counter()
            torch.mm(left, right)[0, 0].item()  # waits for the device
            seconds.append(time.perf_counter() - began)
    return 2 * size**3 / min(seconds) / 1e12
