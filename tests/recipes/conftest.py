"""Tests of the recipes, whose Python files are scripts."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

RECIPES = Path(__file__).resolve().parents[2] / "recipes"

Bash = Callable[..., subprocess.CompletedProcess[str]]


def environment(**more: str) -> dict[str, str]:
    """This environment, with its own nmt first on the path."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "OMP_NUM_THREADS": "1", **more}


def run_bash(
    *arguments: object, code: int = 0, cwd: Path | None = None, **more: str
) -> subprocess.CompletedProcess[str]:
    """Run `bash ARGUMENTS`; fail unless it ends with the exit code `code` and without a traceback."""
    done = subprocess.run(
        ["bash", *map(str, arguments)],
        capture_output=True,
        encoding="utf-8",
        env=environment(**more),
        timeout=500,
        cwd=cwd,
    )
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done


@pytest.fixture(scope="session")
def recipes() -> Path:
    return RECIPES


@pytest.fixture(scope="session")
def bash() -> Bash:
    return run_bash


@pytest.fixture(scope="session")
def variables() -> Callable[..., dict[str, str]]:
    return environment
