"""Peak rates of GPUs from their data sheets, with which a measured rate is compared."""

from __future__ import annotations

import re
from pathlib import Path

import torch

_TABLE = Path(__file__).with_name("rates.tsv").read_text(encoding="utf-8")
PUBLISHED_RATES = {
    model: (float(single), float(half))
    for model, single, half in (line.split("\t") for line in _TABLE.splitlines()[1:])
}
"""TFLOP/s in float32 without tensor cores, and in bfloat16 or float16."""

_IGNORED_WORDS = re.compile(r"nvidia|tesla|geforce|sxm\d*|pcie|hbm\w*|\d+gb")
"""Words of a GPU's name that do not change its rate: maker, socket, memory."""


def published_rate(name: str, products: torch.dtype) -> float | None:
    """Return the peak of the GPU `name` in TFLOP/s, or None if it is not listed.

    Every word of the name must be known: with "Ti", "Laptop" or a MIG profile it is another device.
    """
    words = set(re.findall(r"\w+", name.lower()))
    for model in sorted(PUBLISHED_RATES, key=lambda model: len(model.split()), reverse=True):
        own = set(model.lower().split())
        if own <= words and all(_IGNORED_WORDS.fullmatch(word) for word in words - own):
            single, half = PUBLISHED_RATES[model]
            return single if products == torch.float32 else half
    return None
