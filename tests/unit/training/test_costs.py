"""What a run costs, summed over devices that may change, and the memory that it takes."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from nmt_cli.training.costs import CostMeter, Spent, memory_estimate, utilisation
from nmt_cli.training.rates import Rates

EIGHT = CostMeter(Rates(sustained=10.0, peak=100.0, origin="given by flags"), devices=8)
ONE = CostMeter(Rates(sustained=2.0, peak=50.0, origin="measured on a matrix product"), devices=1)


def test_time_is_counted_once_for_each_device() -> None:
    assert EIGHT.of(3.0) == Spent(device_seconds=24.0, flops_as_table2=240e12, possible_flops=2400e12)


def test_what_was_spent_adds_up_at_the_rates_of_the_time() -> None:
    assert EIGHT.of(3.0) + ONE.of(6.0) == Spent(30.0, 252e12, 2700e12)


def test_utilisation_is_the_share_of_what_was_possible() -> None:
    assert utilisation(600e12, EIGHT.of(3.0)) == 0.25
    assert utilisation(600e12, Spent()) is None
    assert utilisation(0.0, EIGHT.of(3.0)) is None  # the model cannot say


def test_the_description_agrees_with_the_sums() -> None:
    """Rates are means over all device-seconds: hours x rate is the cost, also where devices changed."""
    spent = EIGHT.of(3.0) + ONE.of(6.0)
    described = ONE.describe(spent)
    assert described["devices"] == 1
    assert described["device_hours"] * 3600 * described["sustained_tflops_of_a_device"] == pytest.approx(252)
    assert described["device_hours"] * 3600 * described["peak_tflops_of_a_device"] == pytest.approx(2700)
    assert described["origin_of_these_rates"] == "measured on a matrix product"


def test_a_description_before_the_first_step_has_the_rates_of_now() -> None:
    described = EIGHT.describe(Spent())
    assert (described["device_hours"], described["sustained_tflops_of_a_device"]) == (0, 10)


class Sized(torch.nn.Linear):
    """A model of ten parameters, which keeps a byte a token of either side."""

    def training_memory(self, sentences: int, source: int, target: int, *, low: bool, on_gpu: bool) -> dict[str, int]:
        return {"layers": sentences * (source + target) * (1 if low else 2)}


class Modest:
    """A criterion that takes a byte a token, or two on a GPU."""

    def training_memory(self, model: Any, tokens: int, *, on_gpu: bool) -> int:
        return tokens * (2 if on_gpu else 1)


def test_memory_is_that_of_the_largest_micro_batch() -> None:
    sizes = [(1, 50, 10), (5, 10, 10), (2, 30, 10)]
    found = memory_estimate(Sized(4, 2), Modest(), sizes, low=False, on_gpu=False)
    assert found["by_part"] == {"weights": 40, "gradients": 40, "optimizer": 80, "layers": 200, "loss": 50}
    assert found["total"] == 410


def test_memory_at_another_precision_and_on_another_device() -> None:
    found = memory_estimate(Sized(4, 2), Modest(), [(5, 10, 10)], low=True, on_gpu=True)["by_part"]
    assert (found["layers"], found["loss"]) == (100, 100)


def test_memory_of_parts_that_cannot_say() -> None:
    found = memory_estimate(torch.nn.Linear(4, 2), object(), [(5, 10, 10)], low=False, on_gpu=False)
    assert found == {"total": 160, "by_part": {"weights": 40, "gradients": 40, "optimizer": 80}}
