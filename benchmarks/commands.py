"""Whole commands: their time, processor time and memory, over all processes."""

from __future__ import annotations

import os
import resource
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.report import proc_fields


class Run(NamedTuple):
    """A finished command."""

    seconds: float
    processor_seconds: float
    megabytes: float  # at the peak
    said: str  # on standard error


def run(command: Sequence[str], watched: bool = True) -> Run:
    """Run a command.

    Args:
        watched: whether its memory is measured, which takes a little time.

    Raises:
        SystemExit: it failed.
    """
    start, before, peak = time.monotonic(), processor_seconds(), 0.0
    with tempfile.TemporaryFile("w+") as log, subprocess.Popen(command, stderr=log) as process:
        while watched and process.poll() is None:
            peak = max(peak, sum(map(megabytes, family(process.pid))))
            time.sleep(0.1)
        process.wait()
        seconds = time.monotonic() - start
        log.seek(0)
        said = log.read()
    if process.returncode:
        raise SystemExit(f"error: {' '.join(command)}: {said}")
    return Run(seconds, processor_seconds() - before, peak, said)


def processor_seconds() -> float:
    """Return the processor time of all processes that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def running_seconds(process: int) -> float:
    """Return the processor time of a process that runs, with all that it started."""
    seconds = 0.0
    for pid in family(process):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        seconds += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")  # user, system
    return seconds


def family(process: int) -> list[int]:
    """Return the ids of a process and of all that it started."""
    try:
        children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    except OSError:
        return [process]
    return [process, *(pid for child in children for pid in family(int(child)))]


def megabytes(process: int) -> float:
    """Return the memory of a process, its share of shared pages included. 0 if it has ended."""
    try:
        return int(proc_fields(f"/proc/{process}/smaps_rollup")["Pss"].split()[0]) / 1024
    except (KeyError, OSError):
        return 0.0
