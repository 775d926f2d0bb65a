"""The core is what the five commands need for the paper's Transformer, by a trace of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import tracing

import nmt_cli

PACKAGE = Path(nmt_cli.__file__).parent
TRAINING = (
    "--num-layers 1 --d-model 16 --d-ff 32 --num-heads 2 --batch-tokens 1024 --max-steps 6 "
    "--save-every 2"
)

NEVER_ENTERED = {
    "api.py",  # the same from Python
    "plugins.py",
    "models/encoder_decoder.py",  # the base class of models of other packages
    "cores.py",  # the number of processes, which these commands are given
    "commands/dry_run.py",
    "files/settings.py",  # --config
    "files/nbest.py",  # scores of n-best lists
    *("training/observers.py", "data/sentences.py"),  # base classes
    "decoding/ensemble.py",
    "layers/layout.py",  # decoding without fast/
    "data/moses.py",  # --moses
    *("metrics/add_one.py", "metrics/functions.py", "metrics/significance.py"),
}
"""Files of the core of which the commands may enter no function."""


@pytest.fixture(scope="module")
def entered(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[int]]:
    """The first lines of the functions that the five commands enter, by file."""
    folder = tmp_path_factory.mktemp("traced")
    texts = [
        word for split in ("train", "valid", "test") for word in (f"--{split}", str(corpus / split))
    ]
    data, run, averaged, output = (
        str(folder / name) for name in ("data", "run", "averaged", "output")
    )
    source, reference = str(corpus / "test.en"), str(corpus / "test.de")
    calls = [
        [
            *"prepare --source-lang en --target-lang de".split(),
            *texts,
            "--vocab-size",
            "120",
            "--out",
            data,
            "--workers",
            "1",
        ],
        ["train", data, "--out", run, *TRAINING.split(), "--device", "cpu"],
        ["average", run, "--last", "2", "--out", averaged],
        [
            "translate",
            averaged,
            *"--device cpu --workers 1 --input".split(),
            source,
            "--output",
            output,
        ],
        ["score", output, "--ref", reference],
    ]
    (folder / "calls.json").write_text(json.dumps(calls), encoding="utf-8")
    command = [sys.executable, tracing.__file__, str(folder / "calls.json"), str(PACKAGE)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
    assert done.returncode == 0, done.stderr
    lines_entered = json.loads(done.stdout.splitlines()[-1])
    return {
        str(Path(path).relative_to(PACKAGE)): set(lines) for path, lines in lines_entered.items()
    }


def core_files() -> list[str]:
    files = (path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py"))
    return sorted(str(path) for path in files if path.parts[0] not in ("annexes", "fast"))


def test_the_commands_enter_every_file_of_the_core(entered: dict[str, set[int]]) -> None:
    """Prints the functions that were never entered: `pytest -s` shows them."""
    idle, total, missed = set(), 0, 0
    for name in core_files():
        every = tracing.functions(PACKAGE / name)
        idle_lines = {
            line: function
            for line, function in every.items()
            if line not in entered.get(name, set())
        }
        total, missed = total + len(every), missed + len(idle_lines)
        if idle_lines:
            print(
                f"{name}: "
                f"{', '.join(f'{function} ({line})' for line, function in idle_lines.items())}"
            )
        if every and len(idle_lines) == len(every):
            idle.add(name)
    print(f"{missed} of {total} functions of the core were never entered")
    assert sorted(idle - NEVER_ENTERED) == []


def test_what_the_paper_describes_is_entered(entered: dict[str, set[int]]) -> None:
    for name in (
        "layers/attention.py",
        "models/transformer.py",
        "decoding/beam_search.py",
        "training/trainer.py",
    ):
        assert entered[name]
