"""`nmt train --verify-resume` tells a run that resumes exactly from one that does not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SMALL = (
    "--num-layers 1 --d-model 16 --d-ff 32 --num-heads 2 --batch-tokens 500 --warmup-steps 20 --device cpu "
    "--sustained-tflops 1 --peak-tflops 1"
).split()

FORGETFUL = '''
"""An optimizer whose behaviour depends on what no checkpoint holds: how many steps this process has made."""
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


def verify(data: Path, folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "nmt_cli", "train", str(data), "--out", str(folder / "run"), *SMALL, *more]
    path = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path}
    return subprocess.run([*command, "--verify-resume"], capture_output=True, text=True, env=environment, timeout=500)


def test_a_run_that_resumes_exactly(tiny_data: Path, tmp_path: Path) -> None:
    done = verify(tiny_data, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("verified: ")
    assert list(tmp_path.iterdir()) == []  # nothing is kept


@pytest.mark.skipif(os.environ.get("NMT_FAULTS") != "long", reason="only in the long form: make faults")
def test_a_run_that_does_not(tiny_data: Path, tmp_path: Path) -> None:
    (tmp_path / "forgetful.py").write_text(FORGETFUL)
    done = verify(tiny_data, tmp_path, "--import", "forgetful", "--optimizer", "forgetful")
    assert done.returncode == 1
    assert "differs from an uninterrupted one in checkpoints/" in done.stderr
    assert "Traceback" not in done.stderr
