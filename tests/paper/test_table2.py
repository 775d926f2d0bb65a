"""Table 2's training costs: hours x GPUs x a P100's sustained rate (section 5.2, a note of 6.1)."""

from __future__ import annotations

import pytest

from nmt_cli.training.costs import PAPERS_RATES, CostMeter, Rates


@pytest.mark.parametrize(
    ("hours", "flops"), [(12.0, 3.3e18), (3.5 * 24, 2.3e19)], ids=["base", "big"]
)
def test_costs_of_the_papers_models(hours: float, flops: float) -> None:
    rate = PAPERS_RATES["P100"]
    meter = CostMeter(Rates(rate, rate, "the paper's"), devices=8)
    assert meter.of(hours * 3600).flops_as_table2 == pytest.approx(flops, rel=0.01)
