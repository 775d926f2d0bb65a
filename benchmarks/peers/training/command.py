"""Trainers of other programs: their own commands, stopped by a signal between passes.

A command writes a line with the number of target tokens for each update.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.peers.serve import Ids, word
from benchmarks.peers.training.serve import Setup, System

COPIES = 50
"""Copies of the sentences in the corpus, so that they fill the command's own batches."""


def text_folder(setup: Setup, names: Sequence[str]) -> Path:
    """Return a new directory with files of the sources and of the targets.

    It is removed at the end.
    """
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for side, name in enumerate(names):
        rows: Ids = [row for batch in setup.pairs for row in batch[side]]
        text = "".join(f"{' '.join(map(word, row))}\n" for row in rows)
        (folder / name).write_text(COPIES * text, encoding="utf-8")
    return folder


def system_of_command(version: str, setup: Setup, command: Sequence[str], tokens: str) -> System:
    """Return the system that `command` is.

    Args:
        tokens: finds the number of target tokens in the line of an update.
    """
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, process_group=0
    )
    atexit.register(kill, process)
    counts = numbers(process, re.compile(tokens))

    def one_pass() -> float:
        os.killpg(process.pid, signal.SIGCONT)
        amount = sum(next(counts) for _ in setup.pairs)
        os.killpg(process.pid, signal.SIGSTOP)
        return amount

    return System(version, one_pass, memory=lambda: peak_memory(process.pid))


def kill(process: subprocess.Popen[str]) -> None:
    """End a command with all its processes."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def numbers(process: subprocess.Popen[str], pattern: re.Pattern[str]) -> Iterator[float]:
    """Yield the number in each line that has one.

    End the program with the last line if the command ends.
    """
    assert process.stdout is not None
    line = ""
    for line in process.stdout:
        if match := pattern.search(line):
            yield float(match[1].replace(",", ""))
    raise SystemExit(line or f"ended with {process.wait()}")


def peak_memory(process: int) -> int:
    """Return the largest resident memory of a process so far, in bytes."""
    status = Path(f"/proc/{process}/status").read_text(encoding="utf-8")
    return 1024 * int(status.split("VmHWM:")[1].split()[0])
