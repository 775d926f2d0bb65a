"""Out of memory: the message names the micro-batch and the flag to change, and the run resumes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import tiny_run
import torch

from nmt_cli import checkpoint
from nmt_cli.errors import TrainingError
from nmt_cli.fast.cpu.device import Fast
from nmt_cli.interfaces import Batch
from nmt_cli.training.gradients import Gradients
from nmt_cli.weights import load_weights


def test_out_of_memory(
    forks: Any, tiny_data: Path, whole: Path, tmp_path: Path, check_same: Callable[..., None]
) -> None:
    started = forks.train(tiny_data, tmp_path / "run", poison="no_gpu_memory")
    started.code(1)
    assert "out of memory" in started.err
    assert "--micro-batches 8" in started.err
    forks.train(tiny_data, tmp_path / "run").code(0)
    check_same("out of memory", whole, tmp_path / "run")


run = partial(tiny_run.run, micro_batches=None, max_steps=2, save_every=2)


@pytest.fixture
def _trial(monkeypatch: pytest.MonkeyPatch) -> None:
    """The largest micro-batch is tried first, as on a GPU."""
    monkeypatch.setattr(Fast, "tries_memory", True)


def test_the_trial_runs_the_largest_micro_batch_and_changes_nothing(
    tiny_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    sizes: list[int] = []
    add = Gradients.add

    def watched(self: Gradients, batch: Batch, *more: Any, **values: Any) -> Any:
        sizes.append(batch.source.numel() + batch.target_in.numel())
        return add(self, batch, *more, **values)

    run(tiny_data, tmp_path / "without")
    request.getfixturevalue("_trial")
    monkeypatch.setattr(Gradients, "add", watched)
    run(tiny_data, tmp_path / "with")
    assert len(sizes) == 2 + 2  # two trials, two steps of one micro-batch
    assert sizes[0] == max(sizes)
    assert same_weights(tmp_path / "without", tmp_path / "with")


def same_weights(*runs: Path) -> bool:
    first, second = (load_weights(checkpoint.locate(run)) for run in runs)
    return all((first[name] == second[name]).all() for name in first)


def full_above(numbers: int) -> Callable[..., Any]:
    """`Gradients.add` on a GPU whose memory holds batches of so many source ids."""
    add = Gradients.add

    def limited(self: Gradients, batch: Batch, *more: Any, **values: Any) -> Any:
        if batch.source.numel() > numbers:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return add(self, batch, *more, **values)

    return limited


@pytest.mark.usefixtures("_trial")
def test_micro_batches_double_until_they_fit_and_a_resumed_run_has_as_many(
    tiny_data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Gradients, "add", full_above(200))
        run(tiny_data, tmp_path / "run")
    assert "4 an update" in capsys.readouterr().err
    run(tiny_data, tmp_path / "run", max_steps=4)
    run(tiny_data, tmp_path / "four", max_steps=4, micro_batches=4)
    assert same_weights(tmp_path / "run", tmp_path / "four")


@pytest.mark.usefixtures("_trial")
@pytest.mark.parametrize(
    ("given", "limit", "message"), [(1, 200, "try --micro-batches 2"), (None, 1, "of 1 sentence")]
)
def test_too_little_memory_is_found_before_the_first_step(
    given: int | None,
    limit: int,
    message: str,
    tiny_data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Gradients, "add", full_above(limit))
    with pytest.raises(TrainingError, match=f"out of memory on a micro-batch.*{message}"):
        run(tiny_data, tmp_path / "run", micro_batches=given)
    assert not (tmp_path / "run" / "metrics.jsonl").exists()


@pytest.mark.usefixtures("_trial")
def test_a_model_that_is_too_large(
    tiny_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(tensor: torch.Tensor) -> torch.Tensor:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(torch, "empty_like", failing)
    with pytest.raises(
        TrainingError,
        match=r"the optimizer's state .*; .*smaller",
    ):
        run(tiny_data, tmp_path / "run")


@pytest.mark.usefixtures("_trial")
def test_layers_that_cannot_be_compiled(
    tiny_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a GPU without a C compiler."""

    def failing(self: Gradients, *more: Any, **values: Any) -> Any:
        raise torch._dynamo.exc.TorchDynamoException("Failed to find C compiler\nmore")

    monkeypatch.setattr(Gradients, "add", failing)
    with pytest.raises(TrainingError, match="Failed to find C compiler; --no-compile"):
        run(tiny_data, tmp_path / "run")
