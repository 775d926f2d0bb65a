"""Several processes: the losses of one, and a rank that fails ends all with one message."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from long_form import only_long
from observed import of_run, switched_on, trained

from nmt_cli import checkpoint, registry
from nmt_cli.weights import load_model, load_training, load_weights

HERE = Path(__file__).resolve().parent
LOGGED = ("--log-every", 1, "--dropout", 0.3)


@pytest.fixture
def ranks(forks: Any, start_ranks: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
    """Starts a training in several processes."""

    def start(size: int, data: Path, run: Path, *more: object, **fault: Any) -> list[Any]:
        return start_ranks(size, "train", data, "--out", run, *forks.tiny, *more, **fault)

    return start


def tensors_of_training(folder: Path) -> dict[str, torch.Tensor]:
    return load_training(folder).tensors


def messages(started: list[Any]) -> list[str]:
    """The error messages of all processes."""
    return [
        line for process in started for line in process.err.split("\n") if line.startswith("nmt: ")
    ]


def figures(run: Path) -> list[dict[str, float]]:
    """Figures of each step that do not depend on the number of processes."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().split("\n")[:-1]]
    return [
        {name: line[name] for name in ("step", "loss", "gradient_norm", "target_tokens")}
        for line in lines
    ]


@pytest.mark.parametrize(
    "size",
    [
        (20, "--bpe-dropout", 0.2, "--noise", "typos=0.3"),
        pytest.param((400, "--micro-batches", 6), marks=only_long),
    ],
    ids=str,
)
def test_the_number_of_processes_may_change(
    forks: Any, ranks: Any, tiny_data: Path, tmp_path: Path, size: tuple[object, ...]
) -> None:
    """Parts of a run by different numbers of processes: the same batches, losses and gradients.

    Updates have one to five sentences, and processes one micro-batch or none, and draw the text of
    one sentence or none; or processes have several micro-batches. Losses and gradients agree up to
    rounding.
    """
    settings = (*LOGGED, "--batch-tokens", *size)
    forks.train(tiny_data, tmp_path / "one", *settings, "--max-steps", 8).code(0)
    for processes, last in ((2, 4), (4, 8)):
        for process in ranks(
            processes, tiny_data, tmp_path / "several", *settings, "--max-steps", last
        ):
            process.code(0)
    one, several = figures(tmp_path / "one"), figures(tmp_path / "several")
    assert len(several) == 8
    for actual, expected in zip(several, one, strict=True):
        assert actual == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("optimizer", ["adam", "muon"])
def test_three_processes_resume_exactly(
    ranks: Any, tiny_data: Path, tmp_path: Path, optimizer: str
) -> None:
    """Three numbers have two sums: the order must be the same in a newly started process."""
    flags = (*LOGGED, "--optimizer", optimizer, "--batch-tokens", 60, "--micro-batches", 3)
    weights = []
    for run, ends in (("whole", (4,)), ("resumed", (2, 4))):
        for end in ends:
            for process in ranks(3, tiny_data, tmp_path / run, *flags, "--max-steps", end):
                process.code(0)
        weights.append(load_weights(tmp_path / run / "checkpoints" / "step-00000004"))
    whole, resumed = weights
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)


def test_observers_of_two_processes(ranks: Any, tiny_data: Path, tmp_path: Path) -> None:
    """All registered ones together change no update, and a run with them resumes exactly."""
    registry.discover()
    values: dict[str, Any] = {}
    for observer in registry.components("observer"):
        values |= switched_on(observer)
    switches = [
        f"--{name.replace('_', '-')}" if value is True else f"--{name.replace('_', '-')}={value}"
        for name, value in values.items()
    ]
    for run, ends, flags in (
        ("plain", (4,), []),
        ("whole", (4,), switches),
        ("parts", (2, 4), switches),
    ):
        for end in ends:
            for process in ranks(
                2, tiny_data, tmp_path / run, *LOGGED, "--save-every", 2, "--max-steps", end, *flags
            ):
                process.code(0)
    plain, observed = trained(tmp_path / "plain"), trained(tmp_path / "whole")
    assert all(torch.equal(observed[name], weight) for name, weight in plain.items())
    assert of_run(tmp_path / "parts") == of_run(tmp_path / "whole")


def test_frozen_parameters_and_the_best_are_those_of_one_process(
    forks: Any, ranks: Any, tiny_data: Path, tmp_path: Path
) -> None:
    """The ranks share the validation set, and all stop when BLEU stays the same."""
    settings = (
        *LOGGED,
        *"--freeze encoder --best-by bleu --patience".split(),
        1,
        "--learning-rate-scale",
        0,
    )
    forks.train(tiny_data, tmp_path / "one", *settings).code(0)
    for process in ranks(2, tiny_data, tmp_path / "two", *settings):
        process.code(0)
    one, two = figures(tmp_path / "one"), figures(tmp_path / "two")
    assert [line["step"] for line in two] == list(range(1, 7))
    for actual, expected in zip(two, one, strict=True):
        assert actual == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("poisoned", [1, pytest.param(0, marks=only_long)])
def test_a_rank_is_killed(ranks: Any, tiny_data: Path, tmp_path: Path, poisoned: int) -> None:
    """The other ranks end with one message, long before the timeout."""
    started = ranks(3, tiny_data, tmp_path / "run", poison="dies", poisoned=poisoned)
    assert [process.code() for process in started] == [
        -signal.SIGKILL if i == poisoned else 1 for i in range(3)
    ]
    (message,) = messages(started)
    assert "another rank failed" in message


def test_ranks_that_read_different_files(
    forks: Any, ranks: Any, tiny_data: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    assert forks.train(tiny_data, run, "--max-steps", 4).code() == 0
    started = ranks(2, tiny_data, run, poison="sees_no_checkpoint")
    assert [process.code() for process in started] == [1, 1]
    (message,) = messages(started)
    assert "read the same files" in message
    assert checkpoint.locate(run).name == "step-00000004"


def test_ranks_of_a_machine_do_not_share_a_gpu(ranks: Any, tiny_data: Path, tmp_path: Path) -> None:
    started = ranks(2, tiny_data, tmp_path / "run", "--device", "cuda:0")
    assert [process.code() for process in started] == [2, 2]
    (message,) = messages(started)
    assert "give --device cuda" in message


def test_a_rank_hangs(ranks: Any, tiny_data: Path, tmp_path: Path) -> None:
    """A rank that does not respond ends the run at the timeout."""
    started = ranks(2, tiny_data, tmp_path / "run", "--timeout-minutes", 0.2, poison="hangs")
    assert started[0].code() == 1
    (message,) = messages(started)
    assert "did not respond" in message
    started[1].send(signal.SIGKILL)
    started[1].code()


@pytest.mark.parametrize("poisoned", [0, 1])
def test_a_rank_fails(ranks: Any, tiny_data: Path, tmp_path: Path, poisoned: int) -> None:
    """Its error is printed once, whichever rank it is. The others are quiet."""
    started = ranks(2, tiny_data, tmp_path / "run", poison="raises_an_error", poisoned=poisoned)
    assert [process.code() for process in started] == [1, 1]
    assert messages(started) == [f"nmt: {'rank 1: ' if poisoned else ''}shard.ids: damaged"]


def test_a_wrong_command_is_reported_once(ranks: Any, tiny_data: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "metrics.jsonl").write_text("mine")
    for run, more, data, code in (
        (tmp_path / "mine", (), tiny_data, 2),  # only rank 0 looks there
        (tmp_path / "run", ("--no-such-flag",), tiny_data, 2),
    ):
        started = ranks(2, data, run, *more)
        assert started[0].code() == code
        if more:  # an error before the ranks have joined: the others let rank 0 report first
            assert not started[1].ended
            started[1].send(signal.SIGTERM)  # as torchrun does
        assert started[1].code() != 0
        assert len([process for process in started if process.err]) == 1


def test_a_signal_to_one_process_stops_all(ranks: Any, tiny_data: Path, tmp_path: Path) -> None:
    started = ranks(2, tiny_data, tmp_path / "run", poison="asked_to_stop")
    assert [process.code() for process in started] == [128 + signal.SIGTERM] * 2
    assert len(messages(started)) == 1


def test_torchrun_restarts_the_run(forks: Any, tiny_data: Path, tmp_path: Path) -> None:
    launcher = "-m torch.distributed.run --standalone --nproc-per-node 2 --max-restarts 1".split()
    arguments = (
        "train",
        tiny_data,
        "--out",
        tmp_path / "run",
        *forks.tiny,
        *LOGGED,
        "--max-steps",
        8,
    )
    command = [sys.executable, *launcher, HERE / "rank.py", "dies_once", *arguments]
    done = subprocess.run(
        list(map(str, command)),
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("nmt: ") <= 1  # torchrun may end the other rank before its message
    assert "resuming from" in done.stderr
    assert [line["step"] for line in figures(tmp_path / "run")] == list(range(1, 9))


EXPERTS = (
    *LOGGED,
    "--model",
    "moe_transformer",
    "--experts",
    4,
    "--micro-batches",
    5,
    "--clip-norm",
    0.5,
)


def test_experts_are_divided_among_processes(
    forks: Any, ranks: Any, tiny_data: Path, tmp_path: Path
) -> None:
    """The losses of one process, up to rounding.

    Checkpoints are whole, so the number of processes may change.
    """
    forks.train(tiny_data, tmp_path / "one", *EXPERTS, "--max-steps", 6).code(0)
    for processes, last in ((2, 3), (4, 6)):
        more = (*EXPERTS, "--model-parallel", "--max-steps", last)
        for process in ranks(processes, tiny_data, tmp_path / "several", *more):
            process.code(0)
    for actual, expected in zip(
        figures(tmp_path / "several"), figures(tmp_path / "one"), strict=True
    ):
        assert actual == pytest.approx(expected, rel=1e-4)
    several, one = (load_model(checkpoint.locate(tmp_path / run))[0] for run in ("several", "one"))
    torch.testing.assert_close(several.state_dict(), one.state_dict(), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("in_a_save", [0, pytest.param(1, marks=only_long)])
def test_divided_experts_of_a_killed_run(
    ranks: Any, tiny_data: Path, tmp_path: Path, in_a_save: int
) -> None:
    """Killed in an update and in a save, the same command resumes it bit for bit."""
    settings = (
        *EXPERTS,
        "--model-parallel",
        "--save-every",
        1,
        "--max-steps",
        6,
        "--ema-decay",
        0.5,
    )
    for process in ranks(2, tiny_data, tmp_path / "whole", *settings):
        process.code(0)
    for poison, poisoned in (("dies", 1 - in_a_save), ("dies_in_a_save", in_a_save)):
        started = ranks(
            2, tiny_data, tmp_path / "killed", *settings, poison=poison, poisoned=poisoned
        )
        assert [process.code() for process in started] == [
            -signal.SIGKILL if i == poisoned else 1 for i in range(2)
        ]
        assert 0 < checkpoint.read_contents(checkpoint.locate(tmp_path / "killed")).step < 6
    for process in ranks(2, tiny_data, tmp_path / "killed", *settings):
        process.code(0)
    whole, killed = (checkpoint.locate(tmp_path / run) for run in ("whole", "killed"))
    for one, other in ((load(whole), load(killed)) for load in (load_weights, tensors_of_training)):
        assert all(torch.equal(one[name], other[name]) for name in one)
