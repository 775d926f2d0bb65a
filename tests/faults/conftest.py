"""Real faults in real commands: many with `make faults` (NMT_FAULTS=long), else a few."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fuzzing
import pytest
import tiny_run
import torch.distributed as dist
from long_form import LONG

from nmt_cli.annexes.doctor.resume import contents

HERE = Path(__file__).resolve().parent
KILLED = set[Path]()
"""The commands that SIGKILL ended."""
PATIENCE = 300.0
"""Seconds for one command. It takes one or two on a machine that has nothing else to do."""

# Of 12 steps each second is saved and each third validated.
OFTEN = {"micro_batches": 4, "save_every": 2, "validate_every": 3, "log_every": 5, "keep_last": 3}
TINY = tiny_run.flags(**OFTEN)


@dataclass
class Started:
    """A command that was started."""

    folder: Path

    def _wait(self, name: str) -> str:
        end = time.monotonic() + PATIENCE
        while not (self.folder / name).exists():
            assert time.monotonic() < end, f"no {name} after {PATIENCE} s\n{self.err}"
            time.sleep(0.005)
        return (self.folder / name).read_text()

    @property
    def pid(self) -> int:
        return int(self._wait("pid"))

    @property
    def ended(self) -> bool:
        return (self.folder / "code").exists()

    @property
    def err(self) -> str:
        path = self.folder / "err"
        return path.read_text(errors="replace") if path.exists() else ""

    @property
    def out(self) -> str:
        return (self.folder / "out").read_text()

    @property
    def changes(self) -> int:
        return int((self.folder / "changes").read_text())

    def send(self, number: int) -> None:
        """Send a signal, unless the command has ended."""
        with contextlib.suppress(ProcessLookupError):
            if not self.ended:
                os.kill(self.pid, number)

    def code(self, expected: int | None = None) -> int:
        """Wait for the end, and return the exit code. No command may print a traceback."""
        code = int(self._wait("code"))
        assert "Traceback" not in self.err, self.err
        if code == -signal.SIGKILL:
            KILLED.add(self.folder)
        assert expected is None or code == expected, (
            f"exit code {code}, expected {expected}\n{self.err}"
        )
        return code


@dataclass
class Forks:
    """Starts commands as forks of one process that has imported everything. See forks.py."""

    server: subprocess.Popen[str]
    folder: Path
    tiny = TINY
    training = tiny_run.words(
        {k: v for k, v in (tiny_run.TINY | OFTEN).items() if k not in tiny_run.SIZES}
    )
    """Those of `tiny` that every model has."""

    def start(self, *arguments: object, **order: Any) -> Started:
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        assert self.server.stdin is not None
        content = {
            "arguments": [str(argument) for argument in arguments],
            "folder": str(folder),
            **order,
        }
        self.server.stdin.write(json.dumps(content) + "\n")
        self.server.stdin.flush()
        return Started(folder)

    def train(self, data: Path, run: Path, *more: object, **order: Any) -> Started:
        return self.start("train", data, "--out", run, *TINY, *more, **order)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if LONG:
        terminalreporter.write_line(
            f"{len(KILLED):,} commands killed, {fuzzing.counts['inputs']:,} hostile inputs read"
        )


@pytest.fixture(scope="session")
def forks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "COLUMNS": "200",
        "TORCH_CPP_LOG_LEVEL": "FATAL",
    }
    server = subprocess.Popen(
        [sys.executable, str(HERE / "forks.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
    )
    assert server.stdout is not None
    assert server.stdout.readline() == "ready\n"
    yield Forks(server, tmp_path_factory.mktemp("commands"))
    server.terminate()
    server.wait()


@pytest.fixture
def start_ranks(forks: Forks) -> Iterator[Callable[..., list[Started]]]:
    """Starts one command in several processes, as torchrun does.

    `poison` is for the rank `poisoned`.
    """
    stores = []

    def start(
        size: int, *arguments: object, poison: str | None = None, poisoned: int = 1
    ) -> list[Started]:
        stores.append(dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False))
        address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": stores[-1].port}
        shared = {"WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size, **address}
        started = []
        for rank in range(size):
            place = {
                **shared,
                "RANK": rank,
                "LOCAL_RANK": rank,
                "TORCHELASTIC_USE_AGENT_STORE": True,
            }
            stop = {"STOP_AT": 3, "STOP_BY": int(signal.SIGTERM)}  # for asked_to_stop
            order: dict[str, Any] = {
                "environment": {name: str(value) for name, value in (place | stop).items()}
            }
            if poison and rank == poisoned:
                order["poison"] = poison
            started.append(forks.start(*arguments, **order))
        return started

    yield start
    stores.clear()


@pytest.fixture(scope="session")
def model(forks: Forks, tiny_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model, trained for so long that its outputs are decided."""
    run = tmp_path_factory.mktemp("model") / "run"
    once = ("--save-every", 150, "--validate-every", 150, "--log-every", 150)
    forks.train(
        tiny_data, run, "--max-steps", 150, "--warmup-steps", 100, "--d-model", 32, *once
    ).code(0)
    return run / "checkpoints" / "step-00000150"


@pytest.fixture(scope="session")
def whole(forks: Forks, tiny_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An undisturbed run."""
    run = tmp_path_factory.mktemp("whole") / "run"
    started = forks.train(tiny_data, run, watched=str(run))
    started.code(0)
    (run.parent / "changes").write_text(str(started.changes))
    return run


@pytest.fixture(scope="session")
def changes(whole: Path) -> int:
    """The number of changes of files in an undisturbed run."""
    return int((whole.parent / "changes").read_text())


@pytest.fixture(scope="session")
def rounds() -> Callable[[int, int], int]:
    """Choose a number of repetitions: (in a normal test run, with NMT_FAULTS=long)."""
    return lambda few, many: many if LONG else few


@pytest.fixture(scope="session")
def check_same() -> Callable[..., None]:
    """Compare a run with the undisturbed one, bit for bit."""

    def check(fault: str, expected: Path, run: Path) -> None:
        before, after = contents(expected), contents(run)
        after = {name: content for name, content in after.items() if "/damaged-" not in name}
        assert (
            sorted(
                name for name in before.keys() | after.keys() if before.get(name) != after.get(name)
            )
            == []
        ), fault

    return check
