"""A trial of `nmt tune`: `nmt train` until a time, in a process of its own."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nmt_cli import registry
from nmt_cli.annexes.tune.candidates import of_length
from nmt_cli.distributed import join_world
from nmt_cli.files import durable
from nmt_cli.training.run_directory import CONFIG
from nmt_cli.training.settings import RunOptions
from nmt_cli.training.start import configuration, prepare_torch, run_of

# `nmt train`, once the length of the trial is known. The argument is a request as JSON.
PROGRAM = """
import json, runpy, sys
from nmt_cli.annexes.tune.trial import words_of_trial

sys.argv[1:] = words_of_trial(json.loads(sys.argv[1]))
runpy.run_module("nmt_cli", run_name="__main__")
"""
SHARE_MEASURED = 0.1  # of a trial, in which its pace is measured
MOST_MEASURED = 5.0  # seconds of it
SHARE_TRAINED = 0.9  # of the rest: validation and writing take some
FEWEST_STEPS = 20


def words_of_trial(request: dict[str, Any]) -> list[str]:
    """Return the words of `nmt train` for a trial, which is resumed if it has begun.

    Args:
        request: fields of `RunOptions`, and as `words`, the `settings` that will be in the file
            `config`, and the `deadline`, a time of the clock.
    """
    out = Path(request["out"])
    settings = request["settings"]
    if (out / CONFIG).exists():
        return ["train", "--resume", str(out), "--device", settings["device"]]
    file = Path(request["config"])
    origin = request["init_from"]
    imports = tuple(request["imports"])
    options = RunOptions(
        tuple(request["data"]), None, Path(origin) if origin else None, None, file, imports
    )
    write_json(file, settings)
    deadline = request["deadline"]
    measured = min(SHARE_MEASURED * (deadline - time.time()), MOST_MEASURED)
    pace = seconds_of_update(options, measured)
    steps = int(SHARE_TRAINED * (deadline - time.time()) / pace)
    if steps < FEWEST_STEPS:
        raise SystemExit(f"too slow: an update takes {pace:.2g} s")
    settings |= of_length(steps, settings)
    # It is validated at its end.
    settings |= {"validate_every": None, "save_every": "5m", "keep_last": 1}
    write_json(file, settings)
    return ["train", *request["words"], f"--config={file}", f"--out={out}"]


def write_json(file: Path, content: Mapping[str, Any]) -> None:
    """Replace a file of ours."""
    durable.write_text(file, json.dumps(content, indent=2) + "\n")


def seconds_of_update(options: RunOptions, seconds: float) -> float:
    """Return the mean seconds of the updates that a run makes in so many seconds.

    The first two take longer, and are not counted. Nothing is written.
    """
    registry.discover(options.imports)
    config = configuration(options, {})
    with join_world(config.training.device, config.training.timeout_minutes) as world:
        prepare_torch(config.training, world.device)
        run = run_of(options, config, {}, world, Path(), quiet=True)
        ends: list[float] = []
        with run.trainer.updates.following(run.choose_micro_batches(), 0, 0) as updates:
            for step, update in enumerate(updates, 1):
                run.trainer.update(update.share, step)()
                ends.append(time.perf_counter())
                if step > 2 and ends[-1] - ends[1] > seconds:
                    break
    return (ends[-1] - ends[1]) / (len(ends) - 2)
