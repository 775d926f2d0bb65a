"""Whether a killed run resumes exactly, on the user's data and machine.

A short run is killed (SIGKILL) and resumed. Its last checkpoint and its metrics must be those of an
uninterrupted run, bit for bit.
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

STEPS, SAVE_EVERY, KILLED_AT, TOKENS = 6, 2, 5, 2000
CLOCK = re.compile("second|hours|waiting|utilisation|flops_as_table2|possible_flops|tflops_of")
"""In the names of fields of metrics, state and summary that are measured with a clock, and differ
from run to run.
"""

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
"""A program: `nmt`, killed once it has logged the step that is its first argument."""


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
        return Check(
            "resume",
            f"exact: {STEPS} steps, killed and resumed, are bit for bit those of an undisturbed "
            "run",
        )
    remedy = "a component of your own must keep its state in the optimizer and draw from PyTorch's generator only"
    loose = device.type == "cuda" and not config.training.deterministic
    remedy = "give --deterministic, if it must be" if loose else remedy
    return Check(
        "resume", f"not exact: another {', '.join(different[:3])}", remedy, stops=not loose
    )


def differences(options: RunOptions, config: RunConfig, folder: Path) -> list[str]:
    """Return the files of a resumed run that differ from an undisturbed one; raise a TrainingError
    if one failed.
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
    settings, whole, resumed = (folder / name for name in ("config.json", "whole", "resumed"))
    durable.write_bytes(settings, json.dumps(sections).encode())
    command = ["train", *options.data, "--config", str(settings)]
    command += [f"--import={module}" for module in options.imports]
    command += [f"--init-from={options.init_from}"] if options.init_from else []
    execute(["-m", "nmt_cli", *command, "--out", str(whole)])
    execute(["-c", KILLED, str(KILLED_AT), *command, "--out", str(resumed)], -signal.SIGKILL)
    execute(["-m", "nmt_cli", *command, "--out", str(resumed)])
    expected, found = contents(whole), contents(resumed)
    return sorted(
        name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name)
    )


def execute(arguments: list[str], expected: int = 0) -> None:
    """Run Python with these arguments as one rank; raise a TrainingError unless it ends with the
    expected code.
    """
    alone = {**os.environ, "RANK": "0", "WORLD_SIZE": "1"}
    done = subprocess.run(
        [sys.executable, *arguments], env=alone, capture_output=True, text=True, errors="replace"
    )
    if done.returncode != expected:
        raise TrainingError(
            " ".join(done.stderr.strip().split("\n")[-3:]) or f"exit code {done.returncode}"
        )


def contents(run: Path) -> dict[str, Any]:
    """Return the content of a run's files by name, without what a clock measured; of large files,
    their SHA-256.
    """
    found: dict[str, Any] = {}
    for path in sorted(run.rglob("*")):
        name = str(path.relative_to(run))
        if path.is_symlink():
            found[name] = os.readlink(path)
        elif path.name == METRICS:
            found[name] = [
                without_clock(json.loads(line)) for line in path.read_text("utf-8").splitlines()
            ]
        elif path.name in ("training.json", "summary.json"):
            found[name] = without_clock(json.loads(path.read_text("utf-8")))
        elif path.is_file() and path.name not in ("checksums.json", ".lock"):
            found[name] = fingerprint(path)
    return found


def without_clock(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            name: without_clock(inner) for name, inner in value.items() if not CLOCK.search(name)
        }
    return value
