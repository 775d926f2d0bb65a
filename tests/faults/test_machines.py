"""Two machines, each a network namespace: one is lost in a training and comes back."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from long_form import only_long

from nmt_cli import checkpoint

RANK = Path(__file__).with_name("rank.py")
RECIPES = Path(__file__).resolve().parents[2] / "recipes"
PATIENCE = 300.0


def ip(*arguments: object) -> None:
    done = subprocess.run(["ip", *map(str, arguments)], capture_output=True, text=True)
    if done.returncode:
        raise OSError(done.stderr.strip())


class Machines:
    """The namespaces NAME0 (10.87.0.1) and NAME1 (10.87.0.2), joined by a cable."""

    def __init__(self, name: str) -> None:
        self.names = [f"{name}0", f"{name}1"]

    def build(self) -> None:
        for name in self.names:
            ip("netns", "add", name)
        ip(
            "link",
            "add",
            "cable",
            "netns",
            self.names[0],
            "type",
            "veth",
            "peer",
            "cable",
            "netns",
            self.names[1],
        )
        for number, name in enumerate(self.names):
            ip("-n", name, "address", "add", f"10.87.0.{number + 1}/24", "dev", "cable")
            for device in ("lo", "cable"):
                ip("-n", name, "link", "set", device, "up")

    def remove(self) -> None:
        for name in self.names:
            subprocess.run(["ip", "netns", "delete", name], capture_output=True)

    def plug(self, number: int, state: str) -> None:
        """Connect (`up`) or disconnect (`down`) a machine."""
        ip("-n", self.names[number], "link", "set", "cable", state)

    def train(self, number: int, err: Path, *arguments: object) -> subprocess.Popen[bytes]:
        return self.start(number, err, RECIPES / "train.sh", *arguments)

    def start(self, number: int, err: Path, *command: object) -> subprocess.Popen[bytes]:
        settings = {
            "PROCESSES": "1",
            "NNODES": "2",
            "NODE_RANK": str(number),
            "MASTER_ADDR": "10.87.0.1",
            "TORCHRUN_FLAGS": f"--local-addr 10.87.0.{number + 1}",
            "GLOO_SOCKET_IFNAME": "cable",
            "OMP_NUM_THREADS": "1",
            "RECIPE_GROUP": "yes",  # all processes in one group, which the tests can kill
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        }
        inside = map(str, ["ip", "netns", "exec", self.names[number], *command])
        with err.open("wb") as file:
            return subprocess.Popen(
                list(inside), stderr=file, env={**os.environ, **settings}, start_new_session=True
            )


@pytest.fixture
def machines() -> Iterator[Machines]:
    network = Machines(f"nmt{os.getpid()}-")
    try:
        network.build()
    except OSError as error:
        network.remove()
        pytest.skip(f"no network namespaces can be made here: {error}")
    yield network
    network.remove()


def wait(condition: Callable[[], bool], *logs: Path) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "\n".join(log.read_text(errors="replace") for log in logs)
        time.sleep(0.05)


def steps(run: Path) -> list[int]:
    path = run / "metrics.jsonl"
    return (
        [json.loads(line)["step"] for line in path.read_text().split("\n")[:-1]]
        if path.exists()
        else []
    )


@only_long
def test_a_machine_is_lost_and_comes_back(
    forks: Any, machines: Machines, tiny_data: Path, tmp_path: Path
) -> None:
    """Its cable is pulled and it starts anew: the run goes on from its last checkpoint on both."""
    run, logs = tmp_path / "run", [tmp_path / name for name in ("first", "second", "again")]
    more = (
        "--log-every",
        1,
        "--max-steps",
        1_000_000,
        "--save-every",
        10,
        "--timeout-minutes",
        0.2,
    )
    arguments = (tiny_data, "--out", run, *forks.tiny, *more)
    started = [machines.train(number, logs[number], *arguments) for number in (0, 1)]
    try:
        wait(lambda: len(steps(run)) > 30, *logs[:2])
        machines.plug(1, "down")
        os.killpg(started[1].pid, signal.SIGKILL)
        started[1].wait()
        wait(lambda: "another rank failed" in logs[0].read_text(), logs[0])
        before = steps(run)[-1]
        machines.plug(1, "up")
        started.append(machines.train(1, logs[2], *arguments))
        wait(lambda: steps(run)[-1] > before + 30, logs[0], logs[2])
    finally:
        for process in started:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
    shown = [logs[0], logs[2]]
    wait(lambda: any("stopped by SIGTERM" in log.read_text() for log in shown), *shown)
    assert any("resuming from" in log.read_text() for log in shown)
    last = checkpoint.read_contents(checkpoint.locate(run)).step
    assert steps(run) in ([*range(1, last)], [*range(1, last + 1)])  # the last line may be pending


@only_long
def test_two_machines_translate_a_file(
    forks: Any, machines: Machines, model: Path, tmp_path: Path
) -> None:
    """Of four processes, two on each machine, one is killed.

    Torchrun starts all again, and parts are kept.
    """
    (tmp_path / "in").write_text(
        "".join(f"{name}\n" for name in ["one", "twenty-two", "", "three hundred"] * 25)
    )
    command = ("translate", model, "--input", tmp_path / "in", "--read-ahead", 4, "--device", "cpu")
    forks.start(*command, "--output", tmp_path / "alone").code(0)
    logs = [tmp_path / name for name in ("first", "second")]
    started = []
    for number, log in enumerate(logs):
        launcher = (
            "--nnodes 2 --nproc-per-node 2 --max-restarts 1 --rdzv-backend c10d --rdzv-endpoint "
            "10.87.0.1:29500"
        )
        place = f"--rdzv-conf is_host={1 - number} --local-addr 10.87.0.{number + 1}"
        ranks = [
            sys.executable,
            RECIPES / "torchrun.py",
            *launcher.split(),
            *place.split(),
            RANK,
            "dies_translating_once",
        ]
        started.append(machines.start(number, log, *ranks, *command, "--output", tmp_path / "out"))
    wait(lambda: all(process.poll() is not None for process in started), *logs)
    err = logs[0].read_text() + logs[1].read_text()
    assert [process.returncode for process in started] == [0, 0], err
    assert (tmp_path / "out").read_text() == (tmp_path / "alone").read_text()
    assert err.count("translated 100 lines") == 1
    assert err.count("killed at line") == 1
    assert not list(tmp_path.glob(".out.*.parts"))
