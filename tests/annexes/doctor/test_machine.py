"""Checks of the machine: what is measured, and when it is a warning or a problem."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from nmt_cli.annexes.doctor import machine
from nmt_cli.annexes.doctor.machine import Check, devices, directory, disk
from nmt_cli.distributed import World

ALONE = World(0, 1, torch.device("cpu"))


@dataclass(frozen=True)
class TwoRanks(World):
    """A world whose other rank answers what `other` makes of the answer of this one."""

    other: Callable[[Any], Any] = lambda value: value

    def gather(self, value: Any) -> list[Any]:
        return [value, self.other(value)]


def two(other: Callable[[Any], Any]) -> TwoRanks:
    return TwoRanks(0, 2, torch.device("cpu"), other=other)


@pytest.fixture
def quiet_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (0.0, 0.0, 0.0))


def test_verdicts() -> None:
    checks = (Check("", ""), Check("", "", "do this"), Check("", "", "do this", stops=True))
    assert [check.verdict for check in checks] == ["ok", "warning", "problem"]


@pytest.mark.usefixtures("quiet_machine")
def test_the_slowest_rank_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "measured_rate", lambda *_: 10.0)
    near = devices(two(lambda value: (9.0, "rank 1 on b")), "float32")
    slow = devices(two(lambda value: (5.0, "rank 1 on b")), "float32")
    assert near.verdict == "ok"
    assert (slow.verdict, slow.remedy.partition(" should")[0]) == ("warning", "rank 1 on b")
    assert slow.figures == {"slowest_tflops": 5.0, "fastest_tflops": 10.0}


def test_other_programs_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (1000.0, 0.0, 0.0))
    monkeypatch.setattr(machine, "measured_rate", lambda *_: 10.0)
    assert "load 1000.0" in devices(ALONE, "float32").remedy


def test_a_gpu_far_below_its_data_sheet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "NVIDIA H100 80GB HBM3")
    gpu = replace(ALONE, device=torch.device("cuda", 0))
    for rate, verdict in ((600.0, "ok"), (300.0, "warning")):
        monkeypatch.setattr(machine, "measured_rate", lambda *_, rate=rate: rate)
        assert devices(gpu, "bfloat16").verdict == verdict


def test_a_directory_that_is_fine(tmp_path: Path) -> None:
    results = directory(ALONE, tmp_path, 1000, 3)
    assert [(check.name, check.verdict) for check in results] == [("disk", "ok"), ("locks", "ok")]
    assert results[0].figures["needed_bytes"] == 3000
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("number", "verdict", "remedy"), [(5, "ok", ""), (21, "problem", "--keep-last 8")]
)
def test_room_for_checkpoints(
    number: int, verdict: str, remedy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of ten that fit, one is the best one, and another one is being written."""
    monkeypatch.setattr(machine, "SAMPLE", 1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1_000_000))
    check = disk(tmp_path, 100_000, number)
    assert (check.verdict, check.remedy.endswith(remedy)) == (verdict, True)


def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(machine, "write_all", full)
    result = directory(ALONE, tmp_path)[0]
    assert (result.verdict, result.remedy) == ("problem", "free some space")
    assert list(tmp_path.iterdir()) == []


def test_a_directory_of_another_user(tmp_path: Path) -> None:
    tmp_path.chmod(0o555)
    user = os.geteuid()
    if user == 0:  # root may write everywhere
        os.seteuid(65534)
    try:
        (result,) = directory(ALONE, tmp_path)
    finally:
        os.seteuid(user)
    assert (result.name, result.verdict) == ("disk", "problem")
    assert "Permission denied" in result.value


def test_a_file_system_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    # So nothing is locked, and another process can lock it.
    monkeypatch.setattr(fcntl, "flock", refuse)
    assert directory(ALONE, tmp_path)[1].verdict == "warning"


def test_ranks_that_do_not_share_the_directory(tmp_path: Path) -> None:
    elsewhere = two(
        lambda value: (False, False, "rank 1 on b") if isinstance(value, tuple) else value
    )
    result = directory(elsewhere, tmp_path)[1]
    assert (result.verdict, "rank 1 on b" in result.value) == ("problem", True)


def test_a_lock_that_only_this_machine_keeps(tmp_path: Path) -> None:
    elsewhere = two(
        lambda value: (True, False, "rank 1 on b") if isinstance(value, tuple) else value
    )
    result = directory(elsewhere, tmp_path)[1]
    assert (result.verdict, "rank 1 on b" in result.value) == ("warning", True)
