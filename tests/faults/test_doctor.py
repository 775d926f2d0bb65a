"""`nmt doctor` on several ranks and after signals, and its verdict on exact resume."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tiny_run
from long_form import only_long

from nmt_cli import registry

Nmt = Callable[..., tuple[int, str, str]]

FORGETFUL = '''
"""An optimizer that depends on what no checkpoint holds: the steps of this process."""
from dataclasses import dataclass
import torch
from nmt_cli.registry import register

@dataclass(frozen=True)
class ForgetfulConfig:
    pass

@register("optimizer", "forgetful", ForgetfulConfig)
class Forgetful(torch.optim.SGD):
    def __init__(self, config, *, parameters):
        super().__init__(parameters, lr=0.1)
        self.steps_of_this_process = 0

    def step(self, closure=None):
        self.steps_of_this_process += 1
        for group in self.param_groups:
            group["lr"] /= self.steps_of_this_process
        return super().step(closure)
'''


def test_a_run_that_resumes_exactly(nmt: Nmt, tiny_data: Path, tmp_path: Path) -> None:
    """Also if it draws variants of its sentences: each start is another process."""
    flags = tiny_run.flags(bpe_dropout=0.2, noise="typos=0.3")
    code, out, err = nmt(
        "doctor", tiny_data, "--out", tmp_path / "run", *flags, "--price", 2, "--json"
    )
    assert code == 0, err
    checks = {check["name"]: check for check in json.loads(out)}
    assert list(checks) == ["devices", "memory", "text", "disk", "locks", "run", "resume"]
    # Other programs may run.
    assert {check["verdict"] for check in checks.values()} <= {"ok", "warning"}
    assert checks["resume"]["value"].startswith("exact")
    figures = checks["run"]["figures"]
    assert figures["cost"] == pytest.approx(2 * 12 * figures["update_seconds"] / 3600)
    assert list(tmp_path.iterdir()) == []  # nothing is kept


@only_long
def test_a_run_that_does_not(
    nmt: Nmt, tiny_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry.discover()
    monkeypatch.setattr(
        registry,
        "_components",
        {kind: dict(own_flags) for kind, own_flags in registry._components.items()},
    )
    (tmp_path / "forgetful.py").write_text(FORGETFUL)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    own_flags = ("--import", "forgetful", "--optimizer", "forgetful", "--json")
    code, out, err = nmt("doctor", tiny_data, "--out", tmp_path, *tiny_run.flags(), *own_flags)
    last = json.loads(out)[-1]
    assert (code, err.splitlines()[-1]) == (1, "nmt: this run would stop: resume")
    assert (last["verdict"], "another checkpoints/" in last["value"]) == ("problem", True)
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith(".")) == []


def test_two_ranks(start_ranks: Callable[..., Any], tiny_data: Path, tmp_path: Path) -> None:
    """Rank 0 prints the checks and has the exit code. No disk has room for so many checkpoints."""
    flags = tiny_run.flags(max_steps=10**9, save_every=1, keep_last=10**9)
    first, second = start_ranks(2, "doctor", tiny_data, "--out", tmp_path, *flags, "--json")
    first.code(1)
    second.code(0)
    checks_by_name = {check["name"]: check for check in json.loads(first.out)}
    assert second.out == ""
    assert list(checks_by_name) == ["devices", "memory", "ranks", "disk", "locks", "run"]
    assert [name for name, check in checks_by_name.items() if check["verdict"] == "problem"] == [
        "disk"
    ]
    assert "2 x CPU" in checks_by_name["devices"]["value"]
    assert checks_by_name["ranks"]["figures"]["bytes_per_second"] > 0
    assert checks_by_name["run"]["figures"]["device_hours"] == pytest.approx(
        2 * checks_by_name["run"]["figures"]["hours"]
    )
    assert list(tmp_path.iterdir()) == []


def test_a_signal_leaves_nothing(forks: Any, tiny_data: Path, tmp_path: Path) -> None:
    started = forks.start("doctor", tiny_data, "--out", tmp_path, *tiny_run.flags())
    end = time.monotonic() + 300
    while not list(tmp_path.glob(".nmt-*/whole")):  # the run whose resuming is checked
        assert time.monotonic() < end, started.err
        time.sleep(0.01)
    started.send(signal.SIGTERM)
    assert started.code() == 128 + signal.SIGTERM
    assert list(tmp_path.iterdir()) == []
