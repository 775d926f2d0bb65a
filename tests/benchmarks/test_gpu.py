"""The measurements for a GPU, in a tiny form on the CPU."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest
import torch

from benchmarks import gpu
from benchmarks.gpu import Bench, NotAvailable, histogram, measured
from nmt_cli import registry


def bench(folder: Path, seconds: float = 300.0) -> Bench:
    return Bench(torch.device("cpu"), True, folder, time.monotonic() + seconds, {"tiny": gpu.TINY}, 256, 6)


def test_steps_and_kernels_are_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "compile", lambda function: function)
    shared = bench(tmp_path)
    products = "\n".join(measured(gpu.products, shared))
    assert "| tiny 256 x 16 x 48 |" in products
    assert shared.peak > 0
    attention = "\n".join(measured(gpu.attention, shared))
    assert "| scaled_dot_product_attention, padded |" in attention
    assert "| variable length | not available" in attention  # needs a GPU
    steps = "\n".join(measured(gpu.steps, shared))
    assert "Failed" not in products + attention + steps
    assert "| tiny, default | " in steps
    assert "the slowest" in steps


def test_a_part_that_fails_is_reported(tmp_path: Path) -> None:
    def wrong(_: Bench) -> list[str]:
        """A part."""
        raise ZeroDivisionError("by zero")

    def absent(_: Bench) -> list[str]:
        """A part."""
        raise NotAvailable("there is no such flag")

    shared = bench(tmp_path)
    assert "Failed: ZeroDivisionError: by zero" in list(measured(wrong, shared))  # type: ignore[arg-type]
    assert "Not available: there is no such flag" in list(measured(absent, shared))  # type: ignore[arg-type]


def test_an_unknown_flag_is_not_available(tmp_path: Path) -> None:
    with pytest.raises(NotAvailable, match="--no-such-flag"):
        bench(tmp_path).execute("train", "data", "--no-such-flag")


def test_nothing_runs_when_the_time_is_over(tmp_path: Path) -> None:
    with pytest.raises(NotAvailable, match="no time left"):
        bench(tmp_path, seconds=-60).execute("train", "--list-presets")


def test_a_histogram_counts_every_value() -> None:
    lines = histogram([1.0, 1.0, 1.0, 2.0, 50.0], bins=2, width=3).splitlines()
    assert lines == ["     1.00 ### 3", "     1.50 ## 2", "    50.00 the slowest"]


def test_parts_are_chosen_on_the_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    assert gpu.arguments(["--part", "save", "eighth"]).parts == ["save", "eighth"]
    assert set(gpu.arguments([]).parts) == set(gpu.PARTS)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(sys, "argv", ["gpu"])
    with pytest.raises(SystemExit, match="--device cpu --tiny"):
        gpu.main()


def test_the_schedule_that_records_is_imported_by_nmt_train_only() -> None:
    """Here it would become one of the components that the contracts build, and write at the end of the tests."""
    assert "probed" not in registry.names("schedule")
