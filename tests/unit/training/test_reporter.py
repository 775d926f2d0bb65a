"""What people see of a run: plain lines, a live display that fits a terminal, and the record behind both."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from nmt_cli.training.costs import Spent
from nmt_cli.training.reporter import Reporter, power_of_ten, shown, shown_cost
from nmt_cli.training.state import Progress, Window


def running() -> Progress:
    """At step 50,000 of a large run."""
    spent = Spent(device_seconds=4e5, flops_as_table2=1.24e19, possible_flops=4e20)
    window = Window(100, 2.5e6 * 3.6, 2.5e6 * 2.0, 2_500_000, 2_400_000, 50.0, Spent(400.0, 1.2e16, 4e17), 1e17, 0.5)
    return Progress(
        step=50_000, epoch=1, target_tokens=10**9, training_seconds=5e4, spent=spent, flops=4.06e18, window=window
    )


def test_the_record_has_the_sums_of_the_run_and_the_utilisation_of_the_window() -> None:
    record = Reporter(100_000, speaks=False).record(running(), 7e-4, {})
    assert (record["flops"], record["flops_as_table2"]) == (4.06e18, 1.24e19)
    assert record["model_flop_utilisation"] == 0.25
    assert (record["loss"], record["target_tokens_per_second"]) == (3.6, 50_000)


def test_a_plain_line_has_the_costs(capsys: pytest.CaptureFixture[str]) -> None:
    reporter = Reporter(100_000, speaks=True)
    reporter.show(reporter.record(running(), 7e-4, {"validation_loss": 2.0, "validation_perplexity": 3.0}))
    assert capsys.readouterr().err == (
        "step  50,000  epoch 2  loss 3.600  ppl 7.39  lr 7.00e-04  50,000 tok/s  mfu 25%  "
        "flops 4.1e18 (table 2: 1.2e19)  | valid loss 2.000 ppl 3.00\n"
    )


def test_the_live_display_has_them_too_and_fits_eighty_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    reporter, screen = Reporter(100_000, speaks=True), io.StringIO()
    reporter.console = Console(file=screen, force_terminal=True, width=80, color_system=None)
    progress = running()
    with reporter.display(progress):
        reporter.advance(progress)
    lines = [line.strip() for line in screen.getvalue().split("\n")]
    first, second = lines[-3], lines[-2]
    assert "50000/100000" in first
    assert "loss 3.600  50,000 tok/s" in first
    assert second == "flops 4.1e18 (table 2: 1.2e19)"
    assert "…" not in screen.getvalue()


def test_costs_of_a_model_that_cannot_count() -> None:
    assert shown_cost(None, 1.2e17) == shown_cost(0.0, 1.2e17) == "flops (table 2) 1.2e17"


@pytest.mark.parametrize(
    ("value", "text"), [(0.0, "0.0e0"), (12345.6, "1.2e4"), (9.99e16, "1.0e17"), (0.031, "3.1e-2")]
)
def test_powers_of_ten(value: float, text: str) -> None:
    assert power_of_ten(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(1234567, "1,234,567"), (3.3e18, "3.3e+18"), (0.0001, "0.0001"), (12.5, "12.500"), (None, "None")],
)
def test_figures_of_the_summary(value: object, text: str) -> None:
    assert shown(value) == text
