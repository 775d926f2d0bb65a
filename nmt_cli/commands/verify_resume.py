"""`nmt train --verify-resume`: check on the user's data and machine that a killed run resumes exactly.

A short run is killed (SIGKILL) twice and resumed. Its checkpoints and metrics must be those of an uninterrupted run,
bit for bit.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nmt_cli.commands.train_options import TrainOptions
from nmt_cli.commands.train_setup import configuration
from nmt_cli.errors import TrainingError, UsageError
from nmt_cli.files.text import fingerprint
from nmt_cli.streams import say
from nmt_cli.training.run_directory import METRICS

STEPS = 20
CLOCK = re.compile("second|hours|waiting|utilisation|flops_as_table2|possible_flops|tflops_of")
"""In the names of fields of metrics, state and summary that are measured with a clock, and differ from run to run."""

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


def verify_resume(options: TrainOptions, flags: Mapping[str, Any]) -> str:
    """Return the verdict; raise a TrainingError if a run failed, or the two runs differ."""
    if not options.data:
        raise UsageError("--verify-resume needs DATA: nmt train DATA --verify-resume")
    if int(os.environ.get("WORLD_SIZE", 1)) > 1:
        raise UsageError("--verify-resume starts processes of its own: run it without torchrun")
    sections = configuration(options, flags).to_json()
    short = {"max_steps": STEPS, "save_every": STEPS // 4, "validate_every": None, "keep_last": STEPS}
    sections["training"] |= {**short, "max_epochs": None, "log_every": 1, "patience": None, "tensorboard": False}
    place = options.out.absolute().parent if options.out else None
    with tempfile.TemporaryDirectory(prefix=".nmt-", dir=place if place and place.is_dir() else None) as folder:
        settings, whole, resumed = (Path(folder) / name for name in ("config.json", "whole", "resumed"))
        settings.write_text(json.dumps(sections), encoding="utf-8")
        command = ["train", *options.data, "--config", str(settings)]
        command += [f"--import={module}" for module in options.imports]
        command += [f"--init-from={options.init_from}"] if options.init_from else []
        command += ["--new-vocabulary"] if options.new_vocabulary else []
        say(f"training {STEPS} steps; then again, killed twice and resumed ...")
        execute(["-m", "nmt_cli", *command, "--out", str(whole)])
        for step in (STEPS // 4 + 1, 3 * STEPS // 4 + 1):
            execute(["-c", KILLED, str(step), *command, "--out", str(resumed)], -signal.SIGKILL)
        execute(["-m", "nmt_cli", *command, "--out", str(resumed)])
        expected, found = contents(whole), contents(resumed)
    different = sorted(name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name))
    if different:
        raise TrainingError(
            f"a run of {STEPS} steps that was killed twice and resumed differs from an uninterrupted one in "
            f"{', '.join(different[:3])}. On a GPU give --deterministic; a component of your own must keep its state "
            "in the optimizer and draw from PyTorch's generator only"
        )
    return f"verified: a run of {STEPS} steps, killed twice and resumed, is bit for bit an uninterrupted one"


def execute(arguments: list[str], expected: int = 0) -> None:
    """Run Python with these arguments; raise a TrainingError unless it ends with the expected code."""
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, errors="replace")
    if done.returncode != expected:
        raise TrainingError("\n".join(["a run of --verify-resume failed:", *done.stderr.strip().split("\n")[-5:]]))


def contents(run: Path) -> dict[str, Any]:
    """Return the content of a run's files by name, without what a clock measured; of large files, their SHA-256."""
    found: dict[str, Any] = {}
    for path in sorted(run.rglob("*")):
        name = str(path.relative_to(run))
        if path.is_symlink():
            found[name] = os.readlink(path)
        elif path.name == METRICS:
            found[name] = [without_clock(json.loads(line)) for line in path.read_text("utf-8").splitlines()]
        elif path.name in ("training.json", "summary.json"):
            found[name] = without_clock(json.loads(path.read_text("utf-8")))
        elif path.is_file() and path.name not in ("checksums.json", ".lock"):
            found[name] = fingerprint(path)
    return found


def without_clock(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: without_clock(inner) for name, inner in value.items() if not CLOCK.search(name)}
    return value
