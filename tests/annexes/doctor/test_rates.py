"""The published rate of a GPU, by its name."""

from __future__ import annotations

import pytest
import torch

from nmt_cli.annexes.doctor.rates import PUBLISHED_RATES, published_rate


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA H100 PCIe", "H100 PCIe"),
        ("Tesla V100-PCIE-16GB", "V100 PCIe"),
        ("NVIDIA A10G", None),
        ("NVIDIA GeForce RTX 3090 Ti", None),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", None),
    ],
)
def test_names_of_gpus(name: str, model: str | None) -> None:
    for products in (torch.float32, torch.bfloat16):
        expected = model and PUBLISHED_RATES[model][products == torch.bfloat16]
        assert published_rate(name, products) == expected
