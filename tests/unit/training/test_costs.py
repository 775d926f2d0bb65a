"""The cost of a run, summed over devices that may change."""

from __future__ import annotations

import pytest

from nmt_cli.training.costs import CostMeter, Rates, utilisation
from nmt_cli.training.state import Totals

EIGHT = CostMeter(Rates(sustained=10.0, peak=100.0, origin="given by flags"), devices=8)
ONE = CostMeter(Rates(sustained=2.0, peak=50.0, origin="measured on a matrix product"), devices=1)


def test_seconds_count_once_for_each_device() -> None:
    assert EIGHT.of(3.0) == Totals(seconds=3.0, device_seconds=24.0, flops_as_table2=240e12, possible_flops=2400e12)


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
    assert described["device_hours"] * 3600 * described["sustained_tflops_of_a_device"] == pytest.approx(252)
    assert described["device_hours"] * 3600 * described["peak_tflops_of_a_device"] == pytest.approx(2700)
    before = EIGHT.describe(Totals())
    assert (before["device_hours"], before["sustained_tflops_of_a_device"]) == (0, 10)
