"""`nmt tune`: what is searched on which devices, and what is found."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from nmt_cli import registry
from nmt_cli.annexes.tune.candidates import candidates, of_length
from nmt_cli.annexes.tune.command import TuneOptions
from nmt_cli.annexes.tune.halving import TRIALS, Halving, counts, seconds_of_trial
from nmt_cli.annexes.tune.trial import write_settings
from nmt_cli.config import file_values
from nmt_cli.errors import UsageError, command_line, gpu_called, import_flags
from nmt_cli.streams import say
from nmt_cli.training.reporter import readable, table
from nmt_cli.training.start import check_measure, configuration, open_data

NUMBERS = (27, 18, 9, 6, 4)  # of candidates: as many as there is time for
SHORTEST = 45.0  # seconds of a trial


def search(options: TuneOptions, flags: Mapping[str, Any]) -> None:
    """Search, print the table of the trials, and write the chosen settings.

    Raises:
        UsageError: the data have no validation set, or the minutes are too few.
    """
    if not options.data:
        raise UsageError("DATA is missing: nmt tune DATA --minutes 20")
    registry.discover(options.imports)
    config = configuration(options, flags)
    task, corpus, valid = open_data(options.data)
    if valid is None:
        raise UsageError(
            f"{' '.join(options.data)} has no validation set. Run nmt prepare with --valid PREFIX"
        )
    measure = config.training.measures[0]
    check_measure(measure, task)
    fixed = {**file_values(options.config), **flags}
    if options.preset:
        fixed["preset"] = options.preset
    gpus = gpus_of(config.training.device)
    if gpus:
        fixed["device"] = "cuda"  # the one that the trial sees
    names = {name.rpartition(".")[2] for name in fixed}
    origin = options.init_from
    words = [*options.data, *import_flags(options.imports)]
    if origin is not None:
        words += ["--init-from", str(origin)]
        names.add("preset")  # the checkpoint has the size
    space = "gpu" if gpus else "cpu"
    chosen = candidates(number_for(options.minutes, gpus), space, names)
    if len(chosen) < 2:
        raise UsageError("all settings that nmt tune varies are given. Give fewer flags")
    begun = {
        "minutes": options.minutes,
        "data": corpus.fingerprint,
        "validation": valid.fingerprint,
        "measure": measure,
        "settings": fixed,
        "candidates": {str(number): settings for number, settings in enumerate(chosen, 1)},
    }
    request = {
        "data": options.data,
        "imports": options.imports,
        "init_from": origin and str(origin),
        "words": words,
        "settings": fixed,
    }
    halving = Halving(options.out, json.loads(json.dumps(begun)), request, gpus)
    halving.search()
    print_table(halving)
    minutes = options.train_minutes or options.minutes
    file = write_chosen(halving, minutes)
    trials = sorted((options.out / TRIALS).iterdir())
    say(f"chosen, for a training of about {minutes:g} minutes: {file}")
    say(f"report: {command_line('report', *trials, '--out', options.out / 'report.html')}")
    say(f"next: {command_line('train', *words, '--config', file, '--out', 'RUN')}")


def gpus_of(device: str) -> list[str]:
    """Return the GPUs that trials may have, as CUDA_VISIBLE_DEVICES names them. None: a CPU."""
    count = torch.cuda.device_count
    number = gpu_called(device, count)
    if number is None:
        return []
    numbers = ",".join(map(str, range(count())))
    names = (os.environ.get("CUDA_VISIBLE_DEVICES") or numbers).split(",")
    return names if device in ("auto", "cuda") else names[number : number + 1]


def number_for(minutes: float, gpus: Sequence[str]) -> int:
    """Return the number of candidates for which so many minutes are enough."""
    seconds = 0.0
    for number in NUMBERS:
        seconds = seconds_of_trial(60 * minutes, counts(number), gpus)
        if seconds >= SHORTEST:
            return number
    least = minutes * SHORTEST / seconds
    raise UsageError(f"--minutes {minutes:g} is too short. Give at least {math.ceil(least)}")


def print_table(halving: Halving) -> None:
    """Print all trials, the best one first."""
    rows = []
    for name in halving.order():
        values = map(readable, halving.candidates[name].values())
        results = [rung["results"][name] for rung in halving.rungs if name in rung["results"]]
        rows.append((name, *values, str(len(results)), readable(results[-1])))
    headings = ("trial", *halving.candidates["1"], "rungs", halving.begun["measure"])
    Console(markup=False, emoji=False).print(table(headings, rows))


def write_chosen(halving: Halving, minutes: float) -> Path:
    """Write the settings of the best trial, for a training of so many minutes."""
    best = halving.order()[0]
    summary = halving.summary(len(halving.rungs) - 1, best)
    steps = max(1, round(summary["steps"] * minutes / 60 / summary["training_hours"]))
    settings = {**halving.request["settings"], **halving.candidates[best]}
    settings |= of_length(steps, settings)
    settings["save_every"] = max(1, steps // 20)
    file = halving.out / "chosen.json"
    write_settings(file, settings)
    return file
