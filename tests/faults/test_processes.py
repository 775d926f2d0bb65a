"""Several processes: the same batches and losses as one, and a process that dies, hangs or errs ends all, by name."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent
only_long = pytest.mark.skipif(os.environ.get("NMT_FAULTS") != "long", reason="only in the long form: make faults")
LOGGED = ("--log-every", 1, "--dropout", 0.3)


@pytest.fixture
def ranks(forks: Any) -> Callable[..., list[Any]]:
    """Starts one command in several processes; `poison` is for the last one, or for the one called `poisoned`."""

    def start(
        size: int, data: Path, run: Path, *more: object, poison: str | None = None, poisoned: int | None = None
    ) -> list[Any]:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        started = []
        for rank in range(size):
            place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": size, "MASTER_PORT": port}
            environment = {name: str(value) for name, value in place.items()} | {"MASTER_ADDR": "127.0.0.1"}
            wrong = poison and rank == (size - 1 if poisoned is None else poisoned)
            order: dict[str, Any] = {"environment": environment, **({"poison": poison} if wrong else {})}
            started.append(forks.train(data, run, *more, **order))
        return started

    return start


def losses(run: Path) -> list[tuple[int, float, int]]:
    """Step, loss and target tokens so far."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().split("\n")[:-1]]
    return [(line["step"], line["loss"], line["target_tokens"]) for line in lines]


def assert_agree(first: list[tuple[int, float, int]], second: list[tuple[int, float, int]]) -> None:
    """The same batches in the same order; losses to rounding, dropout included."""
    assert [(step, tokens) for step, _, tokens in first] == [(step, tokens) for step, _, tokens in second]
    for (_, one, _), (_, other, _) in zip(first, second, strict=True):
        assert one == pytest.approx(other, rel=1e-4)


def test_any_number_of_processes_learns_the_same(
    forks: Any, ranks: Any, tiny_data: Path, tmp_path: Path, rounds: Any, tally: Any
) -> None:
    """And a run goes on with another number of processes than it was started with."""
    forks.train(tiny_data, tmp_path / "1", *LOGGED).code(0)
    alone = losses(tmp_path / "1")
    for size in (2, 4)[: rounds(1, 2)]:
        for process in ranks(size, tiny_data, tmp_path / str(size), *LOGGED):
            process.code(0)
        assert_agree(alone, losses(tmp_path / str(size)))
    for number, size in enumerate([2, 1, 4][: rounds(2, 3)]):
        steps = ("--max-steps", 4 * (number + 1))
        for process in ranks(size, tiny_data, tmp_path / "mixed", *LOGGED, *steps):
            process.code(0)
    assert_agree(alone[: len(losses(tmp_path / "mixed"))], losses(tmp_path / "mixed"))
    tally.add("resumed with another number of processes", rounds(1, 2))


@pytest.mark.parametrize("poisoned", [1, pytest.param(0, marks=only_long)])
def test_a_process_that_dies(ranks: Any, tiny_data: Path, tmp_path: Path, tally: Any, poisoned: int) -> None:
    """The others end soon after, and one of them says who it was; the same command then goes on."""
    started = ranks(3, tiny_data, tmp_path / "run", poison="dies", poisoned=poisoned)
    assert started[poisoned].code() == -signal.SIGKILL
    began = time.monotonic()
    others = [process for process in started if process is not started[poisoned]]
    assert [process.code() for process in others] == [1, 1]
    assert time.monotonic() - began < 60
    told = [process.err for process in others if f"rank {poisoned} " in process.err]
    assert len(told) == 1 if poisoned else told
    if poisoned:
        assert "died or hangs" in started[0].err
        assert "The same command goes on from its last checkpoint" in started[0].err
    tally.add("a process dies: named, the others end")


@pytest.mark.parametrize(
    ("poison", "words"),
    [("is_stopped", "died or hangs"), pytest.param("lags", "lives, but has not come", marks=only_long)],
)
def test_a_process_that_hangs(
    ranks: Any, tiny_data: Path, tmp_path: Path, tally: Any, poison: str, words: str, rounds: Any
) -> None:
    minutes = rounds(1, 2) * 0.1
    started = ranks(2, tiny_data, tmp_path / "run", "--timeout-minutes", minutes, poison=poison)
    began = time.monotonic()
    assert started[0].code() == 1
    assert f"nmt: rank 1 {words}" in started[0].err
    assert time.monotonic() - began < 60 * minutes + 120
    started[1].send(signal.SIGKILL)
    started[1].code()
    tally.add("a process hangs: named, the run ends")


@pytest.mark.parametrize("poisoned", [0, 1])
def test_a_process_that_errs(ranks: Any, tiny_data: Path, tmp_path: Path, tally: Any, poisoned: int) -> None:
    """The user hears of it once, whoever it was."""
    started = ranks(2, tiny_data, tmp_path / "run", poison="mistaken", poisoned=poisoned)
    assert [process.code() for process in started] == [1, 1]
    told = [process.err for process in started if "shard.ids: damaged" in process.err]
    assert len(told) == 1
    assert ("rank 1 failed: shard.ids: damaged" in started[0].err) == bool(poisoned)
    tally.add("a process errs: told once, the others end")


def test_errors_that_every_process_meets_are_told_once(ranks: Any, tiny_data: Path, tmp_path: Path, tally: Any) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    for run, more, data, code, words in (
        (tmp_path / "mine", (), tiny_data, 2, "in use for something else"),  # the main process alone looks
        (tmp_path / "run", (), tmp_path / "nowhere", 1, "not prepared data"),
        (tmp_path / "run", ("--preset", "bse"), tiny_data, 2, "there is no preset called 'bse'"),
    ):
        started = ranks(2, data, run, *more)
        assert [process.code() for process in started] == [code, code]
        assert words in started[0].err
        assert started[1].err == ""
        tally.add("a user's mistake, in several processes: told once")


def test_a_signal_to_one_process_stops_all(ranks: Any, tiny_data: Path, tmp_path: Path, tally: Any) -> None:
    started = ranks(2, tiny_data, tmp_path / "run", "--max-steps", 100_000, "--save-every", 50)
    while not (tmp_path / "run" / "metrics.jsonl").exists():
        time.sleep(0.01)
    started[1].send(signal.SIGTERM)
    assert [process.code() for process in started] == [128 + signal.SIGTERM] * 2
    assert "stopped by signal" in started[0].err
    tally.add("a signal to one process of several: all save and stop")


def torchrun(*arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", *map(str, arguments)],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "MASTER_PORT": "0"},
        start_new_session=True,
    )


TINY = (
    "--num-layers 1 --d-model 16 --d-ff 32 --num-heads 2 --batch-tokens 500 --micro-batches 4 --warmup-steps 20 "
    "--max-steps 8 --save-every 2 --device cpu --sustained-tflops 1 --peak-tflops 1"
).split()


def test_torchrun_restarts_and_the_run_goes_on(tiny_data: Path, tmp_path: Path, tally: Any) -> None:
    process = torchrun(
        *("--max-restarts", 1, "--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0"),
        *(HERE / "rank.py", "dies_once", "train", tiny_data, "--out", tmp_path / "run", *TINY, *LOGGED),
    )
    _, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    assert "rank 1 died or hangs" in err
    assert "resuming from" in err
    assert [step for step, _, _ in losses(tmp_path / "run")] == list(range(1, 9))
    tally.add("torchrun --max-restarts after a killed process")


@only_long
def test_torchrun_passes_on_a_signal(tiny_data: Path, tmp_path: Path, tally: Any) -> None:
    process = torchrun(
        *("--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0", "-m", "nmt_cli"),
        *("train", tiny_data, "--out", tmp_path / "run", *TINY, *LOGGED, "--max-steps", 100_000),
    )
    while not (tmp_path / "run" / "metrics.jsonl").exists():
        assert process.poll() is None
        time.sleep(0.05)
    process.terminate()
    _, err = process.communicate(timeout=300)
    assert err.count("stopped by signal") == 1, err
    tally.add("SIGTERM to torchrun: all save and stop")
