"""Peak rates of GPUs from their data sheets, with which a measured rate is compared."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import torch

# Words of a GPU's name that do not change its rate: maker, socket, memory.
_IGNORED_WORDS = re.compile(r"nvidia|tesla|geforce|sxm\d*|pcie|hbm\w*|\d+gb")


class Rates(NamedTuple):
    """TFLOP/s of a GPU."""

    single: float  # float32, without tensor cores
    half: float  # bfloat16 or float16


def read_rates() -> dict[str, Rates]:
    """Return the published rates by model."""
    rates = {}
    table = Path(__file__).with_name("rates.tsv").read_text(encoding="utf-8")
    for line in table.splitlines()[1:]:
        model, single, half = line.split("\t")
        rates[model] = Rates(float(single), float(half))
    return rates


PUBLISHED_RATES = read_rates()


def published_rate(name: str, products: torch.dtype) -> float | None:
    """Return the peak of the GPU `name` in TFLOP/s, or None if it is not listed.

    Every word of the name must be known: with "Ti", "Laptop" or a MIG profile it is another device.
    """
    words = set(re.findall(r"\w+", name.lower()))
    # "H100 PCIe" comes before "H100", which its name has, too.
    for model in sorted(PUBLISHED_RATES, key=lambda model: len(model.split()), reverse=True):
        model_words = set(model.lower().split())
        others = words - model_words
        if model_words <= words and all(_IGNORED_WORDS.fullmatch(word) for word in others):
            rates = PUBLISHED_RATES[model]
            return rates.single if products == torch.float32 else rates.half
    return None
