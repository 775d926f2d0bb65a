"""The recipes' own work: their steps, their table, going on after a stop. (What they reach is in docs/results.md.)"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

RECIPES = Path(__file__).resolve().parents[2] / "recipes"


def recipe(name: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Runs a recipe with the commands of this environment first on the path."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        [str(RECIPES / name), *map(str, arguments)],
        capture_output=True,
        encoding="utf-8",
        env={**os.environ, "PATH": path, "OMP_NUM_THREADS": "1"},
        timeout=300,
    )


def test_quickstart_goes_from_nothing_to_a_table_and_on_from_there(tmp_path: Path) -> None:
    training = "-- --max-steps 5 --save-every 1".split()
    few_steps = ("--source", "en", "--target", "fr", "--out", tmp_path / "quick", *training)
    first = recipe("quickstart.sh", *few_steps)
    assert first.returncode == 1, first.stderr  # five steps do not reach 95 %
    row = next(line for line in first.stdout.split("\n") if "exact match" in line)
    assert "at least 95" in row
    assert "no" in row
    assert "BLEU, sacrebleu-13a" in first.stdout
    assert "->" in first.stdout
    assert "--interactive" in first.stdout
    weights = (tmp_path / "quick" / "averaged" / "model.safetensors").stat().st_mtime_ns
    again = recipe("quickstart.sh", *few_steps)
    assert "already at step 5 of 5" in again.stderr
    assert (tmp_path / "quick" / "averaged" / "model.safetensors").stat().st_mtime_ns == weights
    other = recipe("quickstart.sh", "--out", tmp_path / "quick")
    assert other.returncode == 2
    assert "begun with other settings" in other.stderr


@pytest.mark.parametrize("name", ["quickstart.sh", "multi30k.sh"])
def test_recipes_explain_themselves(name: str) -> None:
    shown = recipe(name, "--help")
    assert shown.returncode == 0
    assert f"recipes/{name}" in shown.stdout
    wrong = recipe(name, "--no-such-flag")
    assert wrong.returncode == 2
    assert "--no-such-flag" in wrong.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ((), 2, "which folder"),
        (("{folder}", "--target", "cs"), 2, "de or fr, not cs"),
        (("{folder}",), 1, "train.en: no such file"),
        (("{folder}", "--out"), 2, "--out needs a value"),
    ],
)
def test_multi30k_says_what_it_misses(tmp_path: Path, arguments: tuple[str, ...], code: int, message: str) -> None:
    done = recipe("multi30k.sh", *(argument.format(folder=tmp_path) for argument in arguments))
    assert done.returncode == code
    assert message in done.stderr


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed")
@pytest.mark.parametrize("script", sorted(RECIPES.glob("*.sh")), ids=lambda path: path.name)
def test_shell_scripts_are_clean(script: Path) -> None:
    done = subprocess.run(["shellcheck", "-x", "-P", str(RECIPES), str(script)], capture_output=True, text=True)
    assert done.stdout == ""
    assert done.returncode == 0
