"""`nmt tune`: what is searched on which devices, and what is found."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from nmt_cli.annexes.tune.candidates import candidates, of_length
from nmt_cli.annexes.tune.halving import Halving, counts, seconds_of_trial
from nmt_cli.annexes.tune.trial import write_json
from nmt_cli.config import file_values
from nmt_cli.errors import UsageError, command_line, gpu_called, import_flags
from nmt_cli.streams import say
from nmt_cli.training.reporter import readable, table
from nmt_cli.training.settings import RunOptions
from nmt_cli.training.start import check_measure, configuration, open_data

NUMBERS = (27, 18, 9, 6, 4)  # of candidates: as many as there is time for
SHORTEST = 45.0  # seconds of a trial


def search(
    options: RunOptions, flags: Mapping[str, Any], out: Path, minutes: float, train_minutes: float
) -> None:
    """Search, print the table of the trials, and write the chosen settings.

    Raises:
        UsageError: the data have no validation set, or the minutes are too few.
    """
    if not options.data:
        raise UsageError("DATA is missing: nmt tune DATA --minutes 20")
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
    names = {name.rpartition(".")[2] for name in fixed}
    origin = options.init_from
    words = [*options.data, *import_flags(options.imports)]
    if origin is not None:
        words += ["--init-from", str(origin)]
        names.add("preset")  # the checkpoint has the size
    if names & {"preset", "model"}:
        names |= {"preset", "model"}
    space = "gpu" if gpus else "cpu"
    chosen = candidates(number_for(minutes, gpus), space, names)
    if len(chosen) < 2:
        raise UsageError("all settings that nmt tune varies are given. Give fewer flags")
    begun = {
        "minutes": minutes,
        "data": corpus.fingerprint,
        "measure": measure,
        "settings": fixed,
        "candidates": chosen,
    }
    request = {
        "data": options.data,
        "imports": options.imports,
        "init_from": origin and str(origin),
        "words": words,
        "settings": fixed,
    }
    halving = Halving(out, json.loads(json.dumps(begun)), request, gpus)
    halving.search()
    print_table(halving)
    file = write_chosen(halving, train_minutes)
    say(
        f"chosen, for a training of about {train_minutes:g} minutes: {file}\n"
        f"report: nmt report {out}/trials/* --out report.html\n"
        f"next: {command_line('train', *words, '--config', file, '--out', 'RUN')}"
    )


def gpus_of(device: str) -> list[str]:
    """Return the GPUs that trials may have. None: they have a CPU."""
    count = torch.cuda.device_count
    if gpu_called(device, count) is None:
        return []
    if device in ("auto", "cuda"):
        return [f"cuda:{number}" for number in range(count())]
    return [device]


def number_for(minutes: float, gpus: Sequence[str]) -> int:
    """Return the number of candidates for which so many minutes are enough."""
    for number in NUMBERS:
        if seconds_of_trial(minutes, counts(number), 0, gpus) >= SHORTEST:
            return number
    raise UsageError(
        f"--minutes {minutes:g} is too short for trials of {SHORTEST:.0f} s. Give more minutes"
    )


def print_table(halving: Halving) -> None:
    """Print all trials, the best one first, with the settings in which they differ."""
    rows = []
    everything = list(halving.candidates.values())
    for name in dict.fromkeys([*halving.order(), *halving.candidates]):
        settings = [
            f"{key} {value}"
            for key, value in halving.candidates[name].items()
            if any(other[key] != value for other in everything)
        ]
        results = halving.results(name)
        rows.append((name, ", ".join(settings), str(len(results)), readable(results[-1])))
    headings = ("trial", "settings", "rungs", halving.begun["measure"])
    Console(markup=False, emoji=False).print(table(headings, rows))


def write_chosen(halving: Halving, minutes: float) -> Path:
    """Write the settings of the best trial, for a training of so many minutes."""
    best = halving.order()[0]
    values = [value for value in halving.results(best) if isinstance(value, float)]
    summary = halving.summary(len(values) - 1, best)
    steps = max(1, round(summary["steps"] * minutes / 60 / summary["training_hours"]))
    settings = {**halving.request["settings"], **halving.candidates[best]}
    settings |= of_length(steps, settings)
    settings["save_every"] = max(1, steps // 20)
    file = halving.out / "chosen.json"
    write_json(file, settings)
    return file
