"""The real commands, as a user starts them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from annexes import ANNEXES, copy_without
from browser import CHROMIUM, NEEDS_A_BROWSER, Browser
from forked_nmt import MODULES
from number_names import write_corpus

Nmt = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def nmt(forked_nmt: Path) -> Nmt:
    """Runs `nmt ARGUMENTS`. Fails unless it ends with the exit code `code` without a traceback."""

    def run(
        *arguments: object, stdin: str = "", code: int = 0, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [forked_nmt, *map(str, arguments)],
            input=stdin,
            capture_output=True,
            encoding="utf-8",
            env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
            timeout=500,
        )
        assert done.returncode == code, done.stderr
        assert "Traceback" not in done.stderr
        return done

    return run


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip(NEEDS_A_BROWSER)
    started = Browser(tmp_path_factory.mktemp("profile"))
    yield started
    started.close()


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Raw text: number names, English and German.

    The numbers of valid and test are not in train.
    """
    folder = tmp_path_factory.mktemp("corpus")
    write_corpus(folder, "en", "de", train=3000, valid=50, test=200)
    return folder


@pytest.fixture(scope="session")
def core(nmt: Nmt, tmp_path_factory: pytest.TempPathFactory) -> Nmt:
    """The core alone: the package without any annex."""
    return partial(nmt, PYTHONPATH=str(copy_without(ANNEXES, tmp_path_factory.mktemp("core"))))


@pytest.fixture(scope="session")
def data(core: Nmt, corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, prepared."""
    folder = tmp_path_factory.mktemp("prepared") / "data"
    splits = [
        part for split in ("train", "valid", "test") for part in (f"--{split}", corpus / split)
    ]
    core(
        "prepare",
        "--source-lang",
        "en",
        "--target-lang",
        "de",
        *splits,
        "--vocab-size",
        120,
        "--out",
        folder,
    )
    return folder


TRAINING = (
    "--num-layers 1 --d-model 64 --d-ff 128 --num-heads 2 --warmup-steps 100 --learning-rate-scale "
    "0.5 "
    "--batch-tokens 1024 --max-steps 400 --save-every 50 --keep-last 5 --seed 1"
).split()
"""A model that learns number names in seconds."""


@pytest.fixture(scope="session")
def training(
    core: Nmt, data: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, list[str], str]:
    """A finished run, the modules that it imported, and what the same command writes after it."""
    folder = tmp_path_factory.mktemp("runs")
    command = ("train", data, *TRAINING, "--out", folder / "run")
    core(*command, **{MODULES: str(folder / "modules")})
    again = core(*command)
    return folder / "run", (folder / "modules").read_text().split(), again.stderr


@pytest.fixture(scope="session")
def run(training: tuple[Path, list[str], str]) -> Path:
    return training[0]
