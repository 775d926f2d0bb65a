"""A check that a killed run resumes exactly, on the user's data and machine.

A short run is killed (SIGKILL) and resumed. Its last checkpoint and its metrics must equal an
uninterrupted run's, bit for bit.
"""

from __future__ import annotations

import gc
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from nmt_cli.annexes.doctor.machine import Check
from nmt_cli.config import RunConfig
from nmt_cli.errors import TrainingError
from nmt_cli.files import durable
from nmt_cli.files.text import fingerprint
from nmt_cli.streams import say
from nmt_cli.training.run_directory import METRICS
from nmt_cli.training.settings import RunOptions

STEPS = 6
SAVE_EVERY = 2
KILLED_AT = 5
TOKENS = 2000

# Names of fields of metrics, state and summary that a clock measured, so that they differ.
CLOCK = re.compile("second|hours|waiting|utilisation|flops_as_table2|possible_flops|tflops_of")

# A program: `nmt`, killed once it has logged the step that is its first argument.
KILLED = """
import os, runpy, signal, sys
from nmt_cli.training.run_directory import RunDirectory

append, last = RunDirectory.append_metrics, int(sys.argv.pop(1))

def append_and_kill(directory, record):
    append(directory, record)
    if record["step"] == last:
        os.kill(os.getpid(), signal.SIGKILL)

RunDirectory.append_metrics = append_and_kill
runpy.run_module("nmt_cli", run_name="__main__")
"""


def resume(options: RunOptions, config: RunConfig, place: Path, device: torch.device) -> Check:
    """Check, in directories in `place`, that a run of one process resumes exactly."""
    gc.collect()  # with the next line, it leaves a GPU's memory to these runs
    torch.cuda.empty_cache()
    say(f"training {STEPS} steps twice, killed once and resumed ...")
    try:
        with tempfile.TemporaryDirectory(prefix=".nmt-", dir=place) as folder:
            different = differences(options, config, Path(folder))
    except TrainingError as error:
        return Check("resume", "a short run failed", str(error), stops=True)
    if not different:
        value = (
            f"exact: {STEPS} steps, killed and resumed, are bit for bit those of an undisturbed run"
        )
        return Check("resume", value)
    value = f"not exact: another {', '.join(different[:3])}"
    if device.type == "cuda" and not config.training.deterministic:
        return Check("resume", value, "give --deterministic, if it must be")
    remedy = (
        "a component of your own must keep its state in the optimizer and draw from PyTorch's "
        "generator only"
    )
    return Check("resume", value, remedy, stops=True)


def differences(options: RunOptions, config: RunConfig, folder: Path) -> list[str]:
    """Return the files of a resumed run that differ from an undisturbed one.

    Raises:
        TrainingError: a run failed.
    """
    sections = config.to_json()
    short = {
        "max_steps": STEPS,
        "save_every": SAVE_EVERY,
        "keep_last": 1,
        "log_every": 1,
        "validate_every": STEPS,
    }
    # Without observers that a resumed run may leave out, such as logs for other programs.
    sections["training"] = {**asdict(config.training), **config.identity()["training"], **short}
    sections["training"] |= {"max_epochs": None, "patience": None}
    sections["training"]["batch_tokens"] = min(TOKENS, sections["training"]["batch_tokens"])
    settings = folder / "config.json"
    whole = folder / "whole"
    resumed = folder / "resumed"
    durable.write_bytes(settings, json.dumps(sections).encode())
    command = ["train", *options.data, "--config", str(settings)]
    command += [f"--import={module}" for module in options.imports]
    if options.init_from is not None:
        command.append(f"--init-from={options.init_from}")
    execute(["-m", "nmt_cli", *command, "--out", str(whole)])
    execute(["-c", KILLED, str(KILLED_AT), *command, "--out", str(resumed)], -signal.SIGKILL)
    execute(["-m", "nmt_cli", *command, "--out", str(resumed)])
    expected = contents(whole)
    actual = contents(resumed)
    names = expected.keys() | actual.keys()
    return sorted(name for name in names if expected.get(name) != actual.get(name))


def execute(arguments: list[str], expected: int = 0) -> None:
    """Run Python with these arguments as one rank.

    Raises:
        TrainingError: it does not end with the expected code.
    """
    alone = {**os.environ, "RANK": "0", "WORLD_SIZE": "1"}
    process = subprocess.run(
        [sys.executable, *arguments], env=alone, capture_output=True, text=True, errors="replace"
    )
    if process.returncode != expected:
        last_lines = process.stderr.strip().split("\n")[-3:]
        raise TrainingError(" ".join(last_lines) or f"exit code {process.returncode}")


def contents(run: Path) -> dict[str, Any]:
    """Return the content of a run's files by name, without what a clock measured.

    Of weights and other large files, it is their SHA-256.
    """
    by_name: dict[str, Any] = {}
    for path in sorted(run.rglob("*")):
        name = str(path.relative_to(run))
        if path.is_symlink():
            by_name[name] = os.readlink(path)
        elif path.name == METRICS:
            lines = path.read_text("utf-8").splitlines()
            by_name[name] = [without_clock(json.loads(line)) for line in lines]
        elif path.name in ("training.json", "summary.json"):
            by_name[name] = without_clock(json.loads(path.read_text("utf-8")))
        elif path.is_file() and path.name not in ("checksums.json", ".lock"):
            by_name[name] = fingerprint(path)
    return by_name


def without_clock(value: Any) -> Any:
    """Return a value of JSON without the fields that a clock measured."""
    if not isinstance(value, dict):
        return value
    return {name: without_clock(inner) for name, inner in value.items() if not CLOCK.search(name)}
