"""The tests that need a GPU run on a bare machine, with the packages of training and pytest."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
WITHOUT = """
import importlib.util, sys

MISSING = set("ctranslate2 docopt hypothesis num2words pytest_timeout".split())
MISSING |= set("rapidfuzz sacremoses sentencex starlette".split())
find_spec = importlib.util.find_spec
importlib.util.find_spec = lambda name, *more: (
    None if name.partition(".")[0] in MISSING else find_spec(name, *more)
)


class Bare:
    def find_spec(self, name, *_):
        if name.partition(".")[0] in MISSING:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Bare())
"""


def test_the_tests_of_training_need_few_packages(tmp_path: Path) -> None:
    """A run on the data of `test_the_host_does_not_wait_for_the_gpu`, and that test collected."""
    (tmp_path / "without.py").write_text(WITHOUT)
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    environment = os.environ | {"PYTHONPATH": path, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    names = "host_does_not_wait or losses_are_read or float16"
    files = ["tests/unit/training/test_trainer.py", "tests/annexes/table2/test_recurrent.py"]
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "without",
        "-p",
        "no:cacheprovider",
        *files,
        "-k",
        names,
    ]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "passed" in done.stdout
