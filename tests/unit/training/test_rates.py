"""Rates of devices: as given, as published, as measured."""

from __future__ import annotations

import pytest
import torch

from nmt_cli.training import rates
from nmt_cli.training.rates import DATASHEET_RATES, PAPERS_RATES, Rates, device_rates, measured_rate, measured_rates
from nmt_cli.training.rates import published_rates as published

CPU, GPU = torch.device("cpu"), torch.device("cuda")


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("NVIDIA B200", "B200"),
        ("NVIDIA H200", "H200"),
        ("NVIDIA H200 NVL", "H200 NVL"),
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA H100 PCIe", "H100 PCIe"),
        ("NVIDIA H100 NVL", "H100 NVL"),
        ("NVIDIA A100-SXM4-80GB", "A100"),
        ("NVIDIA A100 80GB PCIe", "A100"),
        ("A100-PCIE-40GB", "A100"),
        ("NVIDIA A40", "A40"),
        ("NVIDIA A10", "A10"),
        ("NVIDIA L40", "L40"),
        ("NVIDIA L40S", "L40S"),
        ("NVIDIA L4", "L4"),
        ("Tesla V100-SXM2-32GB", "V100"),
        ("Tesla V100-PCIE-16GB", "V100 PCIe"),
        ("Tesla T4", "T4"),
        ("NVIDIA GeForce RTX 4090", "RTX 4090"),
        ("NVIDIA GeForce RTX 3090", "RTX 3090"),
    ],
)
def test_published_peaks(name: str, model: str) -> None:
    single, low = DATASHEET_RATES[model]
    assert published(name, torch.bfloat16) == Rates(single, low, f"published peaks of {model}")
    assert published(name, torch.float32) == Rates(single, single, f"published peaks of {model}")


@pytest.mark.parametrize(("name", "model"), [("Tesla P100-PCIE-16GB", "P100"), ("Tesla K80", "K80"), ("M40", "M40")])
def test_the_papers_own_rates(name: str, model: str) -> None:
    rate = PAPERS_RATES[model]
    assert published(name, torch.bfloat16) == Rates(rate, rate, f"the paper's rate of a {model}")


@pytest.mark.parametrize(
    "name",
    [
        "NVIDIA RTX A1000",
        "NVIDIA RTX A4000",
        "NVIDIA A10G",
        "NVIDIA A100X",
        "NVIDIA T400 4GB",
        "NVIDIA T1000",
        "NVIDIA L20",
        "NVIDIA GeForce RTX 3090 Ti",
        "NVIDIA GeForce RTX 4090 D",
        "NVIDIA GeForce RTX 4090 Laptop GPU",
        "NVIDIA A100-SXM4-40GB MIG 1g.5gb",
        "GRID A100-10C",
        "Tesla V100S-PCIE-32GB",
        "NVIDIA GH200 480GB",
        "AMD Instinct MI300X",
        "",
    ],
)
def test_a_name_that_only_resembles_a_known_one_is_unknown(name: str) -> None:
    assert published(name, torch.bfloat16) is None


def test_low_precision_is_the_faster_one_in_the_table() -> None:
    assert all(single < low for single, low in DATASHEET_RATES.values())


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[tuple[torch.device, torch.dtype]]:
    """What is measured: each measurement finds one TFLOP/s more than the last."""
    calls: list[tuple[torch.device, torch.dtype]] = []

    def measure(device: torch.device, products: torch.dtype) -> float:
        calls.append((device, products))
        return float(len(calls))

    monkeypatch.setattr(rates, "measured_rate", measure)
    return calls


def test_one_measurement_where_the_precisions_agree(measured: list[tuple[torch.device, torch.dtype]]) -> None:
    assert measured_rates(CPU, torch.float32) == Rates(1.0, 1.0, "measured on a matrix product")
    assert measured == [(CPU, torch.float32)]


def test_two_where_they_do_not(measured: list[tuple[torch.device, torch.dtype]]) -> None:
    assert measured_rates(CPU, torch.bfloat16) == Rates(1.0, 2.0, "measured on a matrix product")
    assert measured == [(CPU, torch.float32), (CPU, torch.bfloat16)]


def test_rates_that_are_given_are_not_measured(measured: list[tuple[torch.device, torch.dtype]]) -> None:
    assert device_rates(CPU, "auto", 5.0, 6.0) == Rates(5.0, 6.0, "given by flags")
    assert measured == []
    origin = "given by flags, else measured on a matrix product"
    assert device_rates(CPU, "auto", 5.0, None) == Rates(5.0, 1.0, origin)
    assert device_rates(CPU, "auto", None, 6.0) == Rates(2.0, 6.0, origin)
    assert device_rates(CPU, "auto", None, None) == Rates(3.0, 3.0, "measured on a matrix product")


def test_a_gpu_by_its_name_or_else_by_measuring(
    measured: list[tuple[torch.device, torch.dtype]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA L40S")
    assert device_rates(GPU, "auto", None, None) == Rates(91.6, 362.0, "published peaks of L40S")
    assert measured == []
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA A10G")
    assert device_rates(GPU, "auto", None, None) == Rates(1.0, 2.0, "measured on a matrix product")
    assert measured == [(GPU, torch.float32), (GPU, torch.bfloat16)]


@pytest.mark.parametrize("products", [torch.float32, torch.bfloat16])
def test_measuring(products: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a clock that says each product takes half a second; the draws of training are left as they were."""
    monkeypatch.setitem(rates.PRODUCT_SIZES, "cpu", 100)
    ticks = iter(range(1000))
    monkeypatch.setattr("time.perf_counter", lambda: next(ticks) / 2)
    before = torch.random.get_rng_state()
    assert measured_rate(CPU, products) == pytest.approx(2 * 100**3 / 0.5 / 1e12)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_a_gpu_is_measured_on_a_product_that_keeps_it_busy() -> None:
    assert rates.PRODUCT_SIZES["cuda"] >= 8192
