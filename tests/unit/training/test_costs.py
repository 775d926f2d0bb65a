"""The cost of a run, summed over devices that may change.

Their rates: given, the paper's, measured.
"""

from __future__ import annotations

import pytest
import torch

from nmt_cli.training import costs
from nmt_cli.training.costs import CostMeter, Rates, device_rates, measured_rate, utilisation
from nmt_cli.training.state import Totals

CPU, GPU = torch.device("cpu"), torch.device("cuda")
EIGHT = CostMeter(Rates(sustained=10.0, peak=100.0, source="given by flags"), devices=8)
ONE = CostMeter(Rates(sustained=2.0, peak=50.0, source="measured on a matrix product"), devices=1)


def test_seconds_count_once_for_each_device() -> None:
    assert EIGHT.of(3.0) == Totals(
        seconds=3.0, device_seconds=24.0, flops_as_table2=240e12, possible_flops=2400e12
    )


def test_utilisation_is_the_share_of_the_possible_flops() -> None:
    assert utilisation(Totals(flops=600e12, possible_flops=2400e12)) == 0.25
    assert utilisation(Totals(flops=600e12)) is None
    assert utilisation(EIGHT.of(3.0)) is None  # the model does not count its FLOPs


def test_the_description_agrees_with_the_sums() -> None:
    """Rates are means over all device-seconds, also when a run is resumed on other devices."""
    total = EIGHT.of(3.0)
    total.add(ONE.of(6.0))
    described = ONE.describe(total)
    assert described["devices"] == 1
    assert described["device_hours"] * 3600 * described[
        "sustained_tflops_of_a_device"
    ] == pytest.approx(252)
    assert described["device_hours"] * 3600 * described["peak_tflops_of_a_device"] == pytest.approx(
        2700
    )
    before = EIGHT.describe(Totals())
    assert (before["device_hours"], before["sustained_tflops_of_a_device"]) == (0, 10)


def test_given_before_the_papers_before_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[torch.device, torch.dtype]] = []

    def measure(device: torch.device, products: torch.dtype) -> float:
        calls.append((device, products))
        return float(len(calls))

    monkeypatch.setattr(costs, "measured_rate", measure)
    assert device_rates(CPU, "float32", 5.0, 6.0) == Rates(5.0, 6.0, "given by flags")
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Tesla P100-PCIE-16GB")
    assert device_rates(GPU, "bfloat16", None, None) == Rates(
        9.5, 9.5, "the paper's rate of a P100"
    )
    assert device_rates(GPU, "bfloat16", None, 19.0) == Rates(
        9.5, 19.0, "given by flags, else the paper's rate of a P100"
    )
    assert calls == []
    one = device_rates(CPU, "float32", None, 6.0)
    assert (one.sustained, one.peak) == (1.0, 6.0)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA H100 80GB HBM3")
    unlisted = device_rates(GPU, "bfloat16", None, None)
    assert (unlisted.sustained, unlisted.peak) == (2.0, 3.0)
    assert calls == [(CPU, torch.float32), (GPU, torch.float32), (GPU, torch.bfloat16)]


def test_the_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a clock by which each product takes half a second.

    PyTorch's generator is left as it is.
    """
    monkeypatch.setitem(costs.PRODUCT_SIZES, "cpu", 100)
    ticks = iter(range(1000))
    monkeypatch.setattr("time.perf_counter", lambda: next(ticks) / 2)
    before = torch.random.get_rng_state()
    assert measured_rate(CPU, torch.bfloat16) == pytest.approx(2 * 100**3 / 0.5 / 1e12)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_the_measured_rate_is_the_fastest_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others were interrupted. A product of n by n matrices has 2 n^3 operations."""
    ticks = iter([0.0, 4.0, 10.0, 10.5, 20.0, 21.0])
    monkeypatch.setattr(costs, "PRODUCT_SIZES", {"cpu": 100})
    monkeypatch.setattr(costs.time, "perf_counter", lambda: next(ticks))
    assert measured_rate(CPU, torch.float32, rounds=3) == pytest.approx(2e6 / 0.5 / 1e12)
