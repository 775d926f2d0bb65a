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
from typing import Any, BinaryIO

from nmt_cli.annexes.tune.candidates import Settings
from nmt_cli.annexes.tune.trial import PROGRAM, write_json
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
# Folders with an entry for each trial.
TRIALS = "trials"
SETTINGS = "settings"
LOGS = "logs"
FINALISTS = 2
ADVICE = "Give another --out."


def counts(number: int) -> list[int]:
    """Return the number of candidates in each rung, at the end the two rungs of the finalists."""
    result = [number]
    while result[-1] > FINALISTS:
        result.append(max(FINALISTS, math.ceil(result[-1] / 3)))
    return [*result, FINALISTS]


def places_of(gpus: Sequence[str], count: int) -> list[str]:
    """Return the devices of up to `count` trials at once.

    On GPUs, it is one trial for each. On a CPU, trials share the cores: two trainings with a thread
    each make more updates than two, one after the other, with two threads.
    """
    return list(gpus[:count]) or ["cpu"] * min(count, available_cores())


def seconds_of_trial(
    minutes: float, counts: Sequence[int], rung: int, gpus: Sequence[str]
) -> float:
    """Return the seconds of each trial of a rung, with its start and its validation.

    All rungs take equally long.
    """
    rounds = math.ceil(counts[rung] / len(places_of(gpus, counts[rung])))
    return 60 * minutes / len(counts) / rounds


def started(
    request: Mapping[str, Any], log: Path, threads: int, lock: BinaryIO
) -> subprocess.Popen[bytes]:
    """Start a trial."""
    environment = {"RANK": "0", "WORLD_SIZE": "1", "OMP_NUM_THREADS": str(threads)}
    with open(durable.open_ours(log, os.O_TRUNC), "wb") as output:
        return subprocess.Popen(
            [sys.executable, "-c", PROGRAM, json.dumps(request)],
            env={**os.environ, **environment},
            stdout=output,
            stderr=output,
            pass_fds=[lock.fileno()],
        )


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
        # The results of each rung: values, or why there is none.
        self.rungs: list[dict[str, Any]] = [{} for _ in self.counts]
        if (out / STATE).exists():
            state = read_object(out / STATE, DataError, ADVICE)
            if state.get("begun") != begun:
                raise UsageError(
                    f"{out}: that search has other data, --minutes or flags of nmt train. {ADVICE}"
                )
            self.rungs = state["rungs"]
        elif out.exists() and not (out.is_dir() and not any(out.iterdir())):
            raise UsageError(f"{out}: not a directory of nmt tune. {ADVICE}")

    def save(self) -> None:
        write_json(self.out / STATE, {"begun": self.begun, "rungs": self.rungs})

    def search(self) -> None:
        """Train all rungs, except for what an earlier process has trained.

        Raises:
            Interrupted: a signal stopped the search.
            TrainingError: no trial has a result, or the disk is full.
        """
        for folder in (TRIALS, LOGS, SETTINGS):
            (self.out / folder).mkdir(parents=True, exist_ok=True)
        # Trials inherit it, so that it is locked until all have ended.
        with open(durable.open_ours(self.out / ".lock"), "rb") as lock:
            if not try_lock(lock.fileno()):
                raise UsageError(f"{self.out}: nmt tune, or a trial of it, is still running there")
            self.save()
            survivors = list(self.candidates)
            for number, count in enumerate(self.counts):
                results = self.rungs[number]
                waiting = [name for name in survivors[:count] if name not in results]
                if waiting:
                    self.train(number, waiting, lock)
                survivors = self.ranked(results)
            if not self.order():
                raise TrainingError(
                    f"{self.out}: no trial has a result. The first one: {self.rungs[0]['1']}. Give "
                    "more --minutes, and another --out"
                )

    def train(self, number: int, waiting: list[str], lock: BinaryIO) -> None:
        """Train the trials of a rung that have no result yet."""
        seconds = self.seconds(number)
        running: dict[str, subprocess.Popen[bytes]] = {}
        free = places_of(self.gpus, len(waiting))
        threads = max(1, available_cores() // len(free))
        devices = {}
        say(f"rung {number + 1} of {len(self.counts)}: {len(waiting)} x {seconds:.0f} s")
        try:
            with stop_signals() as signals:
                while waiting or running:
                    while waiting and free:
                        name = waiting.pop(0)
                        devices[name] = free.pop(0)
                        request = self.request_of(number, name, devices[name])
                        running[name] = started(
                            request, self.place(LOGS, number, name), threads, lock
                        )
                    time.sleep(0.1)
                    if signals:
                        message = "stopped. The same command continues the search"
                        raise Interrupted(message, signals[0])
                    for name, process in list(running.items()):
                        code = process.poll()
                        if code is not None:
                            del running[name]
                            free.append(devices[name])
                            self.record(number, name, code)
        finally:
            for process in running.values():
                process.terminate()
            for process in running.values():
                process.wait()

    def request_of(self, number: int, name: str, device: str) -> dict[str, Any]:
        """Return the request of a trial, as in `words_of_trial`."""
        seed = 2 if number == len(self.counts) - 1 else 1
        return {
            **self.request,
            "settings": {
                **self.request["settings"],
                **self.candidates[name],
                "seed": seed,
                "device": device,
            },
            "config": str(self.place(SETTINGS, number, name)),
            "out": str(self.place(TRIALS, number, name)),
            "deadline": time.time() + self.seconds(number),
        }

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
                result = (result + self.rungs[-2][name]) / 2
        elif code == -signal.SIGKILL:
            result = "killed, as systems do that are out of memory"
        else:
            log = self.place(LOGS, number, name)
            lines = log.read_text("utf-8", "replace").strip().split("\n")
            result = lines[-1].removeprefix("nmt: ")
            if os.strerror(errno.ENOSPC) in result:
                raise TrainingError(result)
        self.rungs[number][name] = result
        self.save()
        say(f"  trial {name}: {readable(result)}")

    def seconds(self, number: int) -> float:
        return seconds_of_trial(self.begun["minutes"], self.counts, number, self.gpus)

    def place(self, folder: str, number: int, name: str) -> Path:
        """Return the file or directory of a trial in a folder: rung and trial."""
        return self.out / folder / f"{number + 1}-{name}"

    def summary(self, number: int, name: str) -> Mapping[str, Any]:
        return read_object(self.place(TRIALS, number, name) / SUMMARY, DataError, ADVICE)

    def results(self, name: str) -> list[Any]:
        """Return the values of a trial by rung, or why there is none."""
        return [rung[name] for rung in self.rungs if name in rung]

    def ranked(self, results: Mapping[str, Any]) -> list[str]:
        """Return the trials that have a value, the best one first."""
        values = {name: value for name, value in results.items() if isinstance(value, float)}
        is_reversed = not is_error(self.begun["measure"])
        return sorted(values, key=lambda name: values[name], reverse=is_reversed)

    def order(self) -> list[str]:
        """Return all trials that have a value, those of later rungs first."""
        names = [name for rung in reversed(self.rungs) for name in self.ranked(rung)]
        return list(dict.fromkeys(names))
