"""Peak rates of GPUs from their data sheets, with which a measured rate is compared."""

from __future__ import annotations

import re
from pathlib import Path

import torch

# Words of a GPU's name that do not change its rate: maker, socket, memory.
_IGNORED_WORDS = re.compile(r"nvidia|tesla|geforce|sxm\d*|pcie|hbm\w*|\d+gb")


# By model: TFLOP/s in float32 without tensor cores, and in bfloat16 or float16.
PUBLISHED_RATES: dict[str, tuple[float, float]] = {}
for line in Path(__file__).with_name("rates.tsv").read_text(encoding="utf-8").splitlines()[1:]:
    model, single, half = line.split("\t")
    PUBLISHED_RATES[model] = (float(single), float(half))


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
            single, half = PUBLISHED_RATES[model]
            return single if products == torch.float32 else half
    return None
