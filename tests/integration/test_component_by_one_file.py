"""docs/adding-a-component.md does what it says: its example, saved as one file, trains."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Nmt = Callable[..., subprocess.CompletedProcess[str]]

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "adding-a-component.md"
SMALL = "--num-layers 1 --d-model 16 --d-ff 16 --num-heads 1 --batch-tokens 512 --max-steps 3".split()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the guide's example in it."""
    example = re.search(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    assert example is not None
    (tmp_path / "momentum.py").write_text(example[1], encoding="utf-8")
    return tmp_path


def test_the_example_trains_with_its_own_flags(nmt: Nmt, data: Path, folder: Path) -> None:
    chosen = ("--import", "momentum", "--optimizer", "momentum", "--momentum", "0.95")
    nmt("train", data, *SMALL, *chosen, "--out", folder / "run", PYTHONPATH=str(folder))
    config = json.loads((folder / "run" / "config.json").read_text(encoding="utf-8"))
    found = [section for section in config.values() if isinstance(section, dict) and section.get("name") == "momentum"]
    assert found == [{"name": "momentum", "momentum": 0.95, "nesterov": False}]


def test_its_flags_are_in_the_help(nmt: Nmt, folder: Path) -> None:
    shown = nmt("train", "--import", "momentum", "--help", PYTHONPATH=str(folder)).stdout
    assert "--momentum" in shown
    assert "--nesterov" in shown


def test_its_bounds_are_checked(nmt: Nmt, data: Path, folder: Path) -> None:
    chosen = ("--import", "momentum", "--optimizer", "momentum", "--momentum", "1.5")
    done = nmt("train", data, *SMALL, *chosen, "--out", folder / "run", PYTHONPATH=str(folder), code=2)
    assert "--momentum must be at most 1" in done.stderr


def test_a_checkpoint_trained_with_it_translates_without_it(nmt: Nmt, data: Path, folder: Path) -> None:
    chosen = ("--import", "momentum", "--optimizer", "momentum")
    nmt("train", data, *SMALL, *chosen, "--out", folder / "run", PYTHONPATH=str(folder))
    assert nmt("translate", folder / "run", stdin="forty-two\n").stdout.count("\n") == 1


def test_a_module_that_is_not_there_is_named(nmt: Nmt, data: Path, tmp_path: Path) -> None:
    done = nmt("train", data, "--import", "no_such_module", "--out", tmp_path / "run", code=2)
    assert "--import no_such_module" in done.stderr
