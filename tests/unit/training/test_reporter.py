"""Log lines, the progress bar, and the metrics behind them."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from nmt_cli.training.reporter import Reporter, duration, readable
from nmt_cli.training.state import RunState, Totals


def running() -> RunState:
    """At step 50,000 of a large run."""
    return RunState(
        step=50_000,
        epoch=1,
        gradient_norm=0.5,
        total=Totals(
            target_tokens=10**9,
            seconds=5e4,
            flops=4.06e18,
            flops_as_table2=1.24e19,
            possible_flops=4e20,
        ),
        window=Totals(
            2.5e6 * 3.6, 2.5e6 * 2.0, 2_500_000, 2_400_000, 50.0, 1e17, 400.0, 1.2e16, 4e17
        ),
    )


def test_a_line_of_metrics() -> None:
    """Costs are the run's. The loss and the utilisation are since the last line.

    Epochs count from 1.
    """
    record = Reporter(quiet=True).record(running(), 7e-4, {"validation_bleu": 20.0})
    assert (record["flops"], record["flops_as_table2"]) == (4.06e18, 1.24e19)
    assert (
        record["loss"],
        record["model_flop_utilisation"],
        record["target_tokens_per_second"],
    ) == (3.6, 0.25, 50_000)
    assert (record["epoch"], record["validation_bleu"]) == (2, 20.0)


def test_a_log_line_has_a_clock_and_fits_80_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    reporter = Reporter()
    values = {
        "validation_loss": 2.0,
        "validation_perplexity": 3.0,
        "validation_nll": 1.1,
        "validation_bleu": 25.678,
    }
    reporter.show(reporter.record(running(), 7e-4, values))
    line = capsys.readouterr().err
    assert re.match(
        r"\d\d:\d\d:\d\d step 50,000 epoch 2 loss 3.600 ppl 7.389 lr 7.00e-04 50,000 tok/s\n", line
    )
    assert line.endswith("\n  validation: loss 2 ppl 3 bleu 25.68\n")
    assert max(map(len, line.split("\n"))) <= 80


def test_the_progress_bar_labels_its_times_and_fits_80_columns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    reporter, screen = Reporter(), io.StringIO()
    reporter.console = Console(file=screen, force_terminal=True, width=80, color_system=None)
    state = running()
    with reporter.display(state, 100_000):
        reporter.advance(state)
        reporter.note("word " * 30)
    last = screen.getvalue().split("\n")[-2]
    assert "50000/100000" in last
    assert "loss 3.600  50,000 tok/s elapsed 0:00:00 left -:--:--" in last
    assert "…" not in screen.getvalue()
    assert screen.getvalue().count("word") == 30
    assert all(line.count("word") <= 80 // len("word ") for line in screen.getvalue().split("\n"))
    assert screen.getvalue().endswith("\x1b[2K")  # the bar is erased at the end


def test_the_hours_to_come_are_measured_over_the_first_steps(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Of this process, but the first one. The update of a step is counted a step later."""
    reporter, state = Reporter(), RunState(step=500, total=Totals(seconds=1e6))
    said = {}
    with reporter.display(state, 4112):
        for made_updates in range(20):
            state.step += 1
            reporter.advance(state)
            said[state.step] = capsys.readouterr().err
            state.total.seconds += 100.0 if made_updates == 0 else 2.0
    assert {step: text for step, text in said.items() if text} == {
        512: "about 2:00:00 of training left: 3,600 steps of 2 s, and validation\n"
    }


def test_readable_figures() -> None:
    values = (1234567, 3.3e18, 0.0001, 1.8126, 4321.5, None, True, ("encoder", "*.w_q.*"), ())
    expected = "1,234,567|3.3e+18|0.0001|1.813|4,322|not set|yes|encoder *.w_q.*|none".split("|")
    assert [readable(value) for value in values] == expected


def test_durations() -> None:
    assert [duration(seconds) for seconds in (11.6, 60, 90_061)] == ["12 s", "0:01:00", "25:01:01"]
