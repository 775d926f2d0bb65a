"""`nmt doctor`: memory, time and cost of a run, the order of the checks, and exit codes."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tiny_run

from nmt_cli.annexes.doctor import examination, machine
from nmt_cli.annexes.doctor.examination import fitting_on_cpu, memory_of_process, projection
from nmt_cli.annexes.doctor.machine import Check
from nmt_cli.fast.cpu.device import Fast

Nmt = Callable[..., tuple[int, str, str]]


@pytest.mark.parametrize(
    ("room", "expected"), [(2000, 3), (1600, 3), (1499, 6), (900, 12), (10, 48)]
)
def test_micro_batches_that_fit(room: int, expected: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process with 1,000 bytes less than its share goes on: it runs no larger micro-batch."""
    peaks = {96: 531, 48: 562, 24: 625, 12: 750, 6: 1000, 3: 1500}  # 500 and what is divided
    tried: list[int] = []
    monkeypatch.setattr(examination, "largest", lambda updates, number: tried.append(number))
    monkeypatch.setattr(examination, "fits", lambda *_: True)
    monkeypatch.setattr(examination, "peak_memory", lambda _: peaks[tried[-1]])
    trainer: Any = SimpleNamespace(
        updates=SimpleNamespace(micro_batches=3), world=SimpleNamespace(device=None)
    )
    assert fitting_on_cpu(trainer, room) == expected
    assert tried[-1] == expected
    assert all(peaks[number] <= room for number in tried[2:])


def test_memory_is_that_of_a_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    whole = memory_of_process()
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    assert 1e8 < whole < 1e14
    assert memory_of_process() == pytest.approx(whole / 4, rel=0.2)


def test_hours_and_cost() -> None:
    check = projection(36_000, 0.5, 8, price=2.5)
    assert check.figures == {
        "update_seconds": 0.5,
        "hours": 5.0,
        "device_hours": 40.0,
        "cost": 100.0,
    }
    assert check.value == "36,000 steps of 0.5 s: 5:00:00, 40 device-hours, cost 100.00"
    assert "cost" not in projection(36_000, 0.5, 8, price=None).figures


def test_a_device_that_waits_for_text() -> None:
    assert examination.text(0.01, 0.02).verdict == "ok"
    check = examination.text(0.02, 0.02)  # the update's time has its waits
    assert check.verdict == "warning"
    assert "more CPU cores" in check.remedy


def test_without_data(nmt: Nmt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the current directory, as a table or JSON."""
    monkeypatch.chdir(tmp_path)
    code, out, _ = nmt("doctor", "--device", "cpu", "--json")
    assert (code, [check["name"] for check in json.loads(out)]) == (0, ["devices", "disk", "locks"])
    monkeypatch.setattr(machine, "measured_rate", lambda *_: 12.5)
    code, out, _ = nmt("doctor", "--device", "cpu")
    assert (code, "12.5 TFLOP/s in float32" in out) == (0, True)
    assert list(tmp_path.iterdir()) == []


def test_a_problem_ends_with_1(
    nmt: Nmt, tiny_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other checks are made, but no run that would fail, too. A kernel is no problem."""
    monkeypatch.setattr(examination, "resume", lambda *_: pytest.fail("a run was started"))
    monkeypatch.setattr(machine, "disk", lambda *_: Check("disk", "0 GB", "free some", stops=True))
    monkeypatch.setattr(Fast, "check_kernels", lambda *_: {"loss": "no compiler"})
    code, out, err = nmt("doctor", tiny_data, "--out", tmp_path, *tiny_run.flags(bpe_dropout=0.1))
    assert (code, err.splitlines()[-1]) == (1, "nmt: this run would stop: disk")
    assert "an update, drawn anew" in out
    assert "problem: free some" in out
    assert "for nothing; not for loss: no compiler" in " ".join(out.replace("│", " ").split())
    assert "12 steps" in out


def test_too_little_memory(
    nmt: Nmt, tiny_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        examination, "seconds_of_update", lambda *_: pytest.fail("updates were made")
    )
    monkeypatch.setattr(examination, "memory_of_process", lambda: 1_000_000)
    code, out, err = nmt("doctor", tiny_data, "--out", tmp_path, *tiny_run.flags())
    assert (code, err.splitlines()[-1]) == (1, "nmt: this run would stop: memory")
    assert "give --micro-batches 32" in " ".join(out.replace("│", " ").split())


def test_wrong_usage(nmt: Nmt, tiny_data: Path, tmp_path: Path) -> None:
    """Settings and data are checked as `nmt train` does it."""
    (tmp_path / "file").write_text("")
    for words, message in (
        (("--out", tmp_path / "file"), "is not a directory"),
        (("--d-modle", 4), "--d-model"),
        ((tiny_data, *tiny_run.flags(best_by="f1")), "f1"),
        ((tmp_path / "none",), "no such directory"),
    ):
        code, out, err = nmt("doctor", *words)
        assert (code in (1, 2), out, message in err) == (True, "", True), err


def test_the_flag_of_earlier_versions(nmt: Nmt) -> None:
    assert nmt("train", "data", "--verify-resume")[2].startswith(
        "nmt: nmt train has no flag --verify-resume: use `nmt doctor"
    )


def test_sigterm_is_handled_during_the_checks_only(nmt: Nmt, tmp_path: Path) -> None:
    """A handler that stays would reach the worker processes of later commands in this process."""
    former = signal.getsignal(signal.SIGTERM)
    (tmp_path / "file").touch()
    assert nmt("doctor", "--out", tmp_path / "file")[0] == 2
    assert signal.getsignal(signal.SIGTERM) == former
