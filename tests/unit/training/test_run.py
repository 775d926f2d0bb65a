"""Checkpoints are written while training goes on, and what is due is agreed upon by all ranks."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Sequence
from functools import partial
from itertools import repeat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tiny_run
import torch
from torch import Tensor

from nmt_cli import checkpoint
from nmt_cli.annexes.doctor.resume import contents
from nmt_cli.data.corpus import Corpus
from nmt_cli.fast.cpu.device import Fast
from nmt_cli.fast.cuda.copies import PinnedCopies
from nmt_cli.training import run as training_run
from nmt_cli.training.run import Run
from nmt_cli.training.run_directory import RunDirectory
from nmt_cli.training.settings import TrainingConfig
from nmt_cli.training.state import RunState
from nmt_cli.weights import load_training, load_weights, save_checkpoint

PATIENCE = 120
"""Seconds until a test fails that would wait for ever."""

run = partial(tiny_run.run, max_steps=6, save_every=2, log_every=1)


def test_updates_are_made_while_a_checkpoint_is_written(
    tiny_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one of step 2 is written after step 3, and holds step 2."""
    run(tiny_data, tmp_path / "whole")
    logged = {step: threading.Event() for step in range(1, 7)}
    save, append = save_checkpoint, RunDirectory.append_metrics

    def save_late(place: Path, written: checkpoint.Contents, *more: Any) -> None:
        assert logged[min(written.step + 1, 6)].wait(PATIENCE)
        save(place, written, *more)

    def append_and_tell(self: RunDirectory, record: Any) -> None:
        append(self, record)
        logged[record["step"]].set()

    monkeypatch.setattr(training_run, "save_checkpoint", save_late)
    monkeypatch.setattr(RunDirectory, "append_metrics", append_and_tell)
    run(tiny_data, tmp_path / "run")
    assert contents(tmp_path / "run") == contents(tmp_path / "whole")


def test_a_checkpoint_waits_for_the_copies_of_a_gpu(
    tiny_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its stream's stand-in copies a tensor as it was then, once its event is waited for."""
    run(tiny_data, tmp_path / "whole")
    copy, buffers, started = torch.Tensor.copy_, set(), []

    def start(copied: Tensor, tensor: Tensor, non_blocking: bool = False) -> Tensor:
        if not non_blocking:
            return copy(copied, tensor)
        buffers.add(copied.data_ptr())
        started.append((copied, tensor.clone()))
        return copy(copied, torch.full_like(tensor, torch.nan))

    class Event:
        def __init__(self, **_: Any) -> None:
            self.before: list[Any] = []

        def record(self) -> None:
            self.before = [started.pop() for _ in list(started)]

        def synchronize(self) -> None:
            for copied, value in self.before:
                copy(copied, value)

    monkeypatch.setattr(PinnedCopies, "device_type", "cpu")
    monkeypatch.setattr(Fast, "host_copies", lambda _: PinnedCopies())
    monkeypatch.setattr(torch.Tensor, "copy_", start)
    monkeypatch.setattr(torch.cuda, "Event", Event)
    run(tiny_data, tmp_path / "run")
    assert contents(tmp_path / "run") == contents(tmp_path / "whole")
    tensors = load_training(checkpoint.locate(tmp_path / "run")).tensors
    assert len(buffers) == len(tensors) + len(load_weights(checkpoint.locate(tmp_path / "run")))


def test_a_checkpoint_that_cannot_be_written_stops_the_run(
    tiny_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error is raised at the next step, or at the latest at the next save."""

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(training_run, "save_checkpoint", full)
    with pytest.raises(OSError, match="No space left"):
        run(tiny_data, tmp_path / "run")
    assert checkpoint.resumable_of(tmp_path / "run") == []
    assert len(tiny_run.metrics(tmp_path / "run")) in (2, 3, 4)


def test_the_last_epoch_ends_a_run(tiny_data: Path, tmp_path: Path) -> None:
    """After its last update, which is logged and saved. More epochs continue it."""
    exact = {"batch_tokens": 2000, "max_steps": 10_000, "save_every": 10_000, "log_every": 10_000}
    exact |= {"validate_every": 10_000}
    run(tiny_data, tmp_path / "run", **exact, max_epochs=1)
    run(tiny_data, tmp_path / "run", **exact, max_epochs=2)
    run(tiny_data, tmp_path / "whole", **exact, max_epochs=2)
    records = tiny_run.metrics(tmp_path / "whole")
    assert [(record["epoch"], record["target_tokens"]) for record in records] == [
        (2, 2 * target_tokens(tiny_data))
    ]
    newest = [checkpoint.locate(tmp_path / name) for name in ("run", "whole")]
    first, second = map(load_weights, newest)
    assert all(torch.equal(first[name], weight) for name, weight in second.items())


def target_tokens(data: Path) -> int:
    return int(Corpus.open(data, "train").target_lengths[:].sum())


class Ranks:
    """Stands for a world of `size` ranks, of which the others set no flags."""

    def __init__(self, size: int) -> None:
        self.size = size

    def start_any(self, flags: Sequence[bool]) -> Callable[[], list[bool]]:
        return lambda: list(flags)


@pytest.mark.parametrize(
    ("size", "answers"), [(1, [[True], [False], [True]]), (3, [[False], [True], [False]])]
)
def test_several_ranks_act_on_the_flags_of_the_step_before(
    size: int, answers: list[list[bool]]
) -> None:
    run: Any = SimpleNamespace(world=Ranks(size), flags=lambda: [False])
    assert [Run.agree(run, flag) for flag in (True, False, True)] == answers


def test_waiting_for_data_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([10.0, 10.5, 20.0, 21.0])
    run: Any = SimpleNamespace(state=RunState(), uncounted=None)
    updates: Any = repeat(SimpleNamespace(epoch=0, position=0, ends_epoch=False))
    with monkeypatch.context() as patch:
        patch.setattr(training_run.time, "perf_counter", lambda: next(clock))
        for _ in range(2):
            Run.next_update(run, updates)
    assert (run.state.total.waiting, run.state.window.waiting) == (1.5, 1.5)
    assert run.clock == 20.0


@pytest.mark.parametrize(
    ("validate_every", "actions"), [(None, ["validate", "log", "save"]), ("20m", ["save"])]
)
def test_a_checkpoint_of_minutes_is_validated(
    validate_every: str | None, actions: list[str]
) -> None:
    """Unless the validations have an interval of their own."""
    config = TrainingConfig(save_every="10m", validate_every=validate_every)
    saving, validating = config.intervals()
    state = RunState(step=7)
    run: Any = SimpleNamespace(config=config, state=state, valid="a corpus", at_last_step=False)
    run.save_interval, run.validation_interval = saving, validating
    assert Run.due(run, save_elapsed=True, validation_elapsed=False) == actions
