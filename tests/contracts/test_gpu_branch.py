"""The tests of `gpu_branch.py`, in a process of its own, since torch asks for devices once."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

CASES = Path(__file__).with_name("gpu_branch.py")


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler")
@pytest.mark.skipif(torch.version.cuda is not None, reason="needs a build of torch for CPUs")
@pytest.mark.timeout(900)
def test_training_as_on_a_gpu() -> None:
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")
    }
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:xdist",
        "-p",
        "no:cacheprovider",
        str(CASES),
    ]
    done = subprocess.run(
        command, cwd=CASES.parents[2], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
