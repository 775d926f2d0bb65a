"""The number of cores follows the affinity of the process and the quotas of its control groups."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nmt_cli import cores


@pytest.fixture
def groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the control groups, on a machine of 8 cores.

    The process is in the group `outer/inner`.
    """
    root = tmp_path / "groups"
    (root / "outer/inner").mkdir(parents=True)
    (tmp_path / "own").write_text("4:memory:/elsewhere\n0::/outer/inner\n")
    monkeypatch.setattr(cores, "_GROUPS", root)
    monkeypatch.setattr(cores, "_OWN_GROUP", tmp_path / "own")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    return root


@pytest.mark.parametrize(
    ("quotas", "expected"),
    [
        ({}, 8),
        ({"outer/inner": "max 100000"}, 8),
        ({"outer/inner": "250000 100000"}, 3),
        ({"outer/inner": "1600000 100000"}, 8),
        ({"outer/inner": "max 100000", "outer": "300000 100000", "": "500000 100000"}, 3),
    ],
)
def test_the_least_limit_counts(groups: Path, quotas: dict[str, str], expected: int) -> None:
    for group, quota in quotas.items():
        (groups / group / "cpu.max").write_text(f"{quota}\n")
    assert cores.available_cores() == expected


def test_a_container_sees_only_its_own_group(groups: Path) -> None:
    """Its path is the machine's, but the files of its group are at the root."""
    cores._OWN_GROUP.write_text("0::/not/here\n")
    (groups / "cpu.max").write_text("100000 100000\n")
    assert cores.available_cores() == 1


def test_a_system_without_control_groups(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(cores, "_OWN_GROUP", tmp_path / "missing")
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 6)
    assert cores.available_cores() == 6
