"""The real commands, as a user starts them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from number_names import write_corpus

Nmt = Callable[..., subprocess.CompletedProcess[str]]


def run_nmt(*arguments: object, stdin: str = "", code: int = 0, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs `nmt ARGUMENTS`, and fails unless it ends with the exit code `code` and without a traceback."""
    done = subprocess.run(
        [sys.executable, "-m", "nmt_cli", *map(str, arguments)],
        input=stdin,
        capture_output=True,
        encoding="utf-8",
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        timeout=300,
    )
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done


@pytest.fixture(scope="session")
def nmt() -> Nmt:
    return run_nmt


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Raw text: number names, English and German; the numbers of valid and test are not in train."""
    folder = tmp_path_factory.mktemp("corpus")
    write_corpus(folder, "en", "de", train=3000, valid=50, test=200)
    return folder


@pytest.fixture(scope="session")
def data(nmt: Nmt, prepare: Callable[..., Path], corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, prepared."""
    return prepare(nmt, corpus, tmp_path_factory.mktemp("prepared") / "data")


@pytest.fixture(scope="session")
def prepare() -> Callable[[Nmt, Path, Path], Path]:
    """Prepares `corpus` as `folder`."""

    def run(nmt: Nmt, corpus: Path, folder: Path) -> Path:
        splits = [part for split in ("train", "valid", "test") for part in (f"--{split}", corpus / split)]
        nmt("prepare", "--source-lang", "en", "--target-lang", "de", *splits, "--vocab-size", 120, "--out", folder)
        return folder

    return run
