"""`nmt train --verify-resume`: shows on the user's own data, model and machine that a killed run loses nothing.

One short run is left alone; another is killed (SIGKILL) and started again, twice. Their checkpoints and metrics must be
the same, bit for bit.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from nmt_cli import checkpoint
from nmt_cli.config import RunConfig, resolve
from nmt_cli.errors import TrainingError, UsageError
from nmt_cli.training.run_folder import METRICS
from nmt_cli.training.settings import TrainingConfig

STEPS = 20
"""Of each run, where the user does not want fewer; four times as many where they pass too quickly to be killed."""

ATTEMPTS = 4

CLOCK = frozenset(
    "seconds training_seconds spent target_tokens_per_second source_tokens_per_second flops_as_table2 "
    "model_flop_utilisation".split()
)
"""What is measured with a clock, and so differs from run to run."""


def verify_resume(
    data: Path,
    out: Path | None,
    flags: Mapping[str, Any],
    preset: str | None,
    config_file: Path | None,
    imports: Sequence[str],
) -> str:
    """Trains, kills, resumes and compares, in a temporary folder beside `out`; returns what was found.

    Raises:
        TrainingError: a run failed by itself, or the two differ; the message says in what.
        UsageError: it is called in one of several processes.
    """
    if int(os.environ.get("WORLD_SIZE", 1)) > 1:
        raise UsageError("--verify-resume starts its runs by itself: call it without torchrun")
    config = resolve(TrainingConfig, flags, preset=preset, file=config_file)
    say = Console(stderr=True, highlight=False, soft_wrap=True).print
    place = None if out is None else out.absolute().parent
    if place is not None:
        place.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".verify-resume-", dir=place) as folder:
        for attempt in range(ATTEMPTS):
            steps = min(config.training.max_steps, STEPS) * 4**attempt
            runs = _Runs(Path(folder) / str(steps), data, config, steps, imports)
            say(f"training {steps} steps without a break ...", markup=False)
            runs.finish("whole")
            say("the same once more, killed twice on the way ...", markup=False)
            killed = runs.finish_killed("killed")
            if killed:
                return _verdict(runs, steps, killed)
    raise TrainingError(f"the runs end before they can be killed, even with {steps} steps: give more data")


class _Runs:
    """Short runs of one configuration, each in a process of its own."""

    def __init__(self, folder: Path, data: Path, config: RunConfig, steps: int, imports: Sequence[str]) -> None:
        self.folder, self.steps = folder, steps
        self.every = max(1, steps // 4)
        folder.mkdir()
        sections = config.to_json()
        sections["training"] |= {
            "max_steps": steps,
            "save_every": str(self.every),
            "validate_every": None,
            "keep_last": steps,
            "log_every": 1,
            "patience": None,
        }
        (folder / "config.json").write_text(json.dumps(sections), encoding="utf-8")
        self.command = [sys.executable, "-m", "nmt_cli", "train", str(data), "--config", str(folder / "config.json")]
        for module in imports:
            self.command += ["--import", module]

    def start(self, name: str) -> subprocess.Popen[bytes]:
        """Starts or resumes the run `name`; what it says goes to a file."""
        with (self.folder / f"{name}.log").open("ab") as log:
            return subprocess.Popen([*self.command, "--out", str(self.folder / name)], stdout=log, stderr=log)

    def finish(self, name: str) -> None:
        """Lets a run go to its end.

        Raises:
            TrainingError: it failed; the message ends with what it said last.
        """
        self._check(name, self.start(name).wait())

    def finish_killed(self, name: str) -> list[int]:
        """Kills a run after its first and after its third checkpoint, and lets it end.

        Returns:
            The steps that it had reached when it was killed; none where it was too quick.
        """
        killed = []
        for checkpoints in (1, 3):
            process = self.start(name)
            while process.poll() is None and self._reached(name) <= checkpoints * self.every:
                time.sleep(0.005)
            process.kill()
            if process.wait() >= 0:
                self._check(name, process.returncode)
                break
            killed.append(self._reached(name))
        self.finish(name)
        return killed

    def _reached(self, name: str) -> int:
        """The last step in the run's metrics."""
        path = self.folder / name / METRICS
        return path.read_bytes().count(b"\n") if path.exists() else 0

    def _check(self, name: str, code: int) -> None:
        if code:
            last = (self.folder / f"{name}.log").read_text(encoding="utf-8", errors="replace").strip().split("\n")[-5:]
            raise TrainingError("\n".join(["the run that was to be verified fails by itself:", *last]))


def _verdict(runs: _Runs, steps: int, killed: Sequence[int]) -> str:
    found = list(differences(runs.folder / "whole", runs.folder / "killed"))
    what = f"killed after step {' and '.join(map(str, killed))} of {steps} and resumed"
    if found:
        more = f" and {len(found) - 3} more" if len(found) > 3 else ""
        raise TrainingError(
            f"{what}, this run is not the same as one that was left alone: {'; '.join(found[:3])}{more}. On a GPU give "
            "--deterministic; a component of your own must draw random numbers from torch's generator alone."
        )
    saved = len(checkpoint.checkpoints_of(runs.folder / "whole"))
    return (
        f"verified: {what}, the run gives bit for bit the same {saved} checkpoints (weights, optimizer, cursor) and "
        "metrics as one that was left alone"
    )


def differences(first: Path, second: Path) -> Iterator[str]:
    """In what two runs' checkpoints and metrics differ, the clock's figures left out."""
    names = [folder.name for folder in checkpoint.checkpoints_of(first)]
    if names != [folder.name for folder in checkpoint.checkpoints_of(second)]:
        yield "they saved at different steps"
        return
    for name in names:
        pair = [run / checkpoint.FOLDER_OF_RUN / name for run in (first, second)]
        states = [checkpoint.load_training(folder) for folder in pair]
        tensors = [
            checkpoint.load_weights(folder) | {f"optimizer {key}": tensor for key, tensor in state.tensors.items()}
            for folder, state in zip(pair, states, strict=True)
        ]
        for key in sorted(tensors[0].keys() | tensors[1].keys()):
            if not _same(tensors[0].get(key), tensors[1].get(key)):
                yield f"{name}: {key}"
        if timeless(states[0].values) != timeless(states[1].values):
            yield f"{name}: {checkpoint.TRAINING_JSON}"
    if _metrics(first) != _metrics(second):
        yield METRICS


def timeless(value: Any) -> Any:
    """`value` without what a clock measured."""
    if isinstance(value, dict):
        return {name: timeless(inner) for name, inner in value.items() if name not in CLOCK}
    return value


def _same(first: torch.Tensor | None, second: torch.Tensor | None) -> bool:
    if first is None or second is None or first.shape != second.shape or first.dtype != second.dtype:
        return False
    return bytes(first.contiguous().view(-1).view(torch.uint8).numpy()) == bytes(
        second.contiguous().view(-1).view(torch.uint8).numpy()
    )


def _metrics(run: Path) -> list[Any]:
    return [timeless(json.loads(line)) for line in (run / METRICS).read_text(encoding="utf-8").split("\n")[:-1]]
