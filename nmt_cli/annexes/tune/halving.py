"""`nmt tune`: successive halving (Jamieson and Talwalkar 2016).

A rung trains its candidates anew, for equal times, with a schedule of that length. A third of them
goes on to the next rung. The last two candidates are trained with two seeds.
"""

from __future__ import annotations

import errno
import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from nmt_cli.annexes.tune.candidates import Settings
from nmt_cli.annexes.tune.trial import PROGRAM
from nmt_cli.cores import available_cores
from nmt_cli.errors import DataError, Interrupted, TrainingError, UsageError
from nmt_cli.files import durable
from nmt_cli.files.staging import try_lock
from nmt_cli.files.text import read_object
from nmt_cli.streams import say
from nmt_cli.training.reporter import readable
from nmt_cli.training.run_directory import SUMMARY
from nmt_cli.training.signals import stop_signals
from nmt_cli.training.state import is_error

STATE = "tune.json"
LOCK = ".lock"
# Folders with an entry for each trial.
TRIALS = "trials"
SETTINGS = "settings"
LOGS = "logs"
FINALISTS = 2
MOST_TIMES = 2  # a trial is stopped after so many times its seconds
ADVICE = "Give another --out."


class Training(NamedTuple):
    """A trial that is being trained."""

    process: subprocess.Popen[bytes]
    start: float
    place: dict[str, str]


def counts(number: int) -> list[int]:
    """Return the number of candidates in each rung, at the end the two rungs of the finalists."""
    result = [number]
    while result[-1] > FINALISTS:
        result.append(max(FINALISTS, math.ceil(result[-1] / 3)))
    return [*result, FINALISTS]


def places_of(gpus: Sequence[str], count: int) -> list[dict[str, str]]:
    """Return the environments of up to `count` trials at once.

    On GPUs, it is one trial for each. On a CPU, trials share the cores: two trainings with a thread
    each make more updates than two, one after the other, with two threads.
    """
    if gpus:
        return [{"CUDA_VISIBLE_DEVICES": name} for name in gpus[:count]]
    cores = available_cores()
    number = min(count, cores)
    return [{"OMP_NUM_THREADS": str(cores // number)}] * number


def seconds_of_trial(seconds: float, remaining: Sequence[int], gpus: Sequence[str]) -> float:
    """Return the seconds of each trial of the first of the remaining rungs.

    All rungs take equally long.

    Args:
        seconds: the time of all of them.
        remaining: the number of candidates in each rung.
    """
    rounds = math.ceil(remaining[0] / len(places_of(gpus, remaining[0])))
    return seconds / len(remaining) / rounds


class Halving:
    """The trials in the directory `out`, and a record of those that have ended.

    Args:
        begun: what makes the search what it is, such as the `candidates` by name, the `measure` by
            which they are judged, and the `minutes`. An earlier search in `out` must have the same.
        request: the part of all requests of `words_of_trial` that is the same.

    Raises:
        UsageError: `out` has something else.
    """

    def __init__(
        self, out: Path, begun: Mapping[str, Any], request: Mapping[str, Any], gpus: Sequence[str]
    ) -> None:
        self.out = out
        self.begun = begun
        self.request = request
        self.gpus = gpus
        self.candidates: dict[str, Settings] = begun["candidates"]
        self.counts = counts(len(self.candidates))
        # Of each rung the `seconds` of a trial, and `results`: values, or why there is none.
        self.rungs: list[dict[str, Any]] = []
        self.start = time.monotonic()
        if (out / STATE).exists():
            state = read_object(out / STATE, DataError, ADVICE)
            different = [name for name in begun if state["begun"].get(name) != begun[name]]
            if different:
                raise UsageError(
                    f"{out}: this search was started with other {', '.join(different)}. {ADVICE}"
                )
            self.rungs = state["rungs"]
            self.start -= state["seconds"]
        elif out.exists() and any(path.name != LOCK for path in out.iterdir()):
            raise UsageError(f"{out}: not a directory of nmt tune. {ADVICE}")

    def save(self) -> None:
        seconds = time.monotonic() - self.start
        state = {"begun": self.begun, "seconds": seconds, "rungs": self.rungs}
        durable.write_text(self.out / STATE, json.dumps(state, indent=2) + "\n")

    def search(self) -> None:
        """Train all rungs, except for what an earlier process has trained.

        Raises:
            Interrupted: a signal stopped the search.
            TrainingError: no trial of a rung has a result, or the disk is full.
        """
        for folder in (TRIALS, LOGS, SETTINGS):
            (self.out / folder).mkdir(parents=True, exist_ok=True)
        # Trials inherit it, so that it is locked until all have ended.
        with open(durable.open_ours(self.out / LOCK), "rb") as lock:
            if not try_lock(lock.fileno()):
                raise UsageError(f"{self.out}: nmt tune, or a trial of it, is still running there")
            survivors = list(self.candidates)
            for number, count in enumerate(self.counts):
                survivors = survivors[:count]
                if number == len(self.rungs):
                    left = 60 * self.begun["minutes"] - (time.monotonic() - self.start)
                    remaining = [len(survivors), *self.counts[number + 1 :]]
                    seconds = seconds_of_trial(left, remaining, self.gpus)
                    self.rungs.append({"seconds": seconds, "results": {}})
                    self.save()
                results = self.rungs[number]["results"]
                waiting = [name for name in survivors if name not in results]
                if waiting:
                    self.train(number, waiting, lock)
                survivors = self.ranked(results)
                if not survivors:
                    raise TrainingError(
                        f"{self.out}: no trial has a result. The first one: "
                        f"{next(iter(results.values()))}. Give more --minutes, and another --out"
                    )

    def train(self, number: int, waiting: list[str], lock: BinaryIO) -> None:
        """Train the trials of a rung that have no result yet."""
        seconds = self.rungs[number]["seconds"]
        running: dict[str, Training] = {}
        free = places_of(self.gpus, len(waiting))
        say(f"rung {number + 1} of {len(self.counts)}: {len(waiting)} x {seconds:.0f} s")
        try:
            with stop_signals() as signals:
                while waiting or running:
                    while waiting and free:
                        name = waiting.pop(0)
                        running[name] = self.started(number, name, free.pop(0), lock)
                    time.sleep(0.1)
                    if signals:
                        message = "stopped. The same command continues the search"
                        raise Interrupted(message, signals[0])
                    for name, trial in list(running.items()):
                        if time.monotonic() - trial.start > MOST_TIMES * seconds:
                            trial.process.terminate()
                        if trial.process.poll() is not None:
                            del running[name]
                            free.append(trial.place)
                            self.record(number, name, trial.process.returncode)
        finally:
            for trial in running.values():
                trial.process.terminate()
            for trial in running.values():
                trial.process.wait()

    def started(self, number: int, name: str, place: dict[str, str], lock: BinaryIO) -> Training:
        seed = 2 if number == len(self.counts) - 1 else 1
        request = {
            **self.request,
            "settings": {**self.request["settings"], **self.candidates[name], "seed": seed},
            "config": str(self.place(SETTINGS, number, name)),
            "out": str(self.place(TRIALS, number, name)),
            "deadline": time.time() + self.rungs[number]["seconds"],
        }
        with open(durable.open_ours(self.place(LOGS, number, name), os.O_TRUNC), "wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-c", PROGRAM, json.dumps(request)],
                env={**os.environ, "RANK": "0", "WORLD_SIZE": "1", **place},
                stdout=output,
                stderr=output,
                pass_fds=[lock.fileno()],
            )
        return Training(process, time.monotonic(), place)

    def record(self, number: int, name: str, code: int) -> None:
        """Record the result of a trial that has ended.

        Raises:
            TrainingError: the disk is full.
        """
        if code == 0:
            result = self.summary(number, name)[f"best_validation_{self.begun['measure']}"]
            if result is None:
                result = "its validation is not finite"
            elif number == len(self.counts) - 1:  # the mean over both seeds
                result = (result + self.rungs[-2]["results"][name]) / 2
        elif code == -signal.SIGKILL:
            result = "killed, as systems do that are out of memory"
        else:
            log = self.place(LOGS, number, name)
            lines = log.read_text("utf-8", "replace").strip().split("\n")
            result = lines[-1].removeprefix("nmt: ")
            if os.strerror(errno.ENOSPC) in result:
                raise TrainingError(result)
        self.rungs[number]["results"][name] = result
        self.save()
        say(f"  trial {name}: {readable(result)}")

    def place(self, folder: str, number: int, name: str) -> Path:
        """Return the file or directory of a trial in a folder: rung and trial."""
        return self.out / folder / f"{number + 1}-{name}"

    def summary(self, number: int, name: str) -> Mapping[str, Any]:
        return read_object(self.place(TRIALS, number, name) / SUMMARY, DataError, ADVICE)

    def ranked(self, results: Mapping[str, Any]) -> list[str]:
        """Return the trials that have a value, the best one first."""
        values = {name: value for name, value in results.items() if isinstance(value, float)}
        is_reversed = not is_error(self.begun["measure"])
        return sorted(values, key=lambda name: values[name], reverse=is_reversed)

    def order(self) -> list[str]:
        """Return all trials, those of later rungs first, and those without a result at the end."""
        names = [name for rung in reversed(self.rungs) for name in self.ranked(rung["results"])]
        return list(dict.fromkeys([*names, *self.rungs[0]["results"]]))
