"""Out of memory: the message names the micro-batch and the flag to change, and the run resumes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nmt_cli import checkpoint, registry
from nmt_cli.commands.train import train
from nmt_cli.commands.train_parts import TrainOptions
from nmt_cli.errors import TrainingError
from nmt_cli.training.trainer import Trainer


def test_out_of_memory(
    forks: Any, tiny_data: Path, whole: Path, tmp_path: Path, check_same: Callable[..., None]
) -> None:
    run = tmp_path / "run"
    started = forks.train(tiny_data, run, poison="no_gpu_memory")
    started.code(1)
    assert "out of memory" in started.err
    assert "--micro-batches 8" in started.err
    forks.train(tiny_data, run).code(0)
    check_same("out of memory", whole, run)


@pytest.fixture(autouse=True)
def _components() -> None:
    registry.discover()


SMALL: dict[str, Any] = {
    "num_layers": 1,
    "d_model": 16,
    "d_ff": 32,
    "num_heads": 2,
    "batch_tokens": 500,
    "max_steps": 2,
    "save_every": 2,
    "device": "cpu",
}


@pytest.fixture
def _trial(monkeypatch: pytest.MonkeyPatch) -> None:
    """The largest micro-batch is tried first, as on a GPU."""
    fit = Trainer.fit

    def fit_after_trial(self: Trainer, run: Any) -> None:
        self.try_largest(run.state.epoch)
        fit(self, run)

    monkeypatch.setattr(Trainer, "fit", fit_after_trial)


def test_the_trial_runs_the_largest_micro_batch_and_changes_nothing(
    tiny_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    sizes: list[int] = []
    backward = Trainer.backward

    def watched(self: Trainer, indices: Any, tokens: int) -> Any:
        sizes.append(len(indices) * int(self.parts.plan.padded_lengths(indices).sum()))
        return backward(self, indices, tokens)

    train(TrainOptions(tiny_data, tmp_path / "without"), SMALL)
    request.getfixturevalue("_trial")
    monkeypatch.setattr(Trainer, "backward", watched)
    train(TrainOptions(tiny_data, tmp_path / "with"), SMALL)
    assert len(sizes) == 2 + 2  # two trials, two steps of one micro-batch
    assert sizes[0] == max(sizes)
    first, second = (checkpoint.load_weights(checkpoint.locate(tmp_path / name)) for name in ("without", "with"))
    assert all((first[name] == second[name]).all() for name in first)


@pytest.mark.usefixtures("_trial")
def test_too_little_memory_is_found_before_the_first_step(
    tiny_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    def full(self: Any, *_: Any, **__: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(torch.Tensor, "backward", full)
    with pytest.raises(TrainingError, match=r"micro-batch of \d+ sentences.*--micro-batches 2"):
        train(TrainOptions(tiny_data, tmp_path / "run"), SMALL)
    assert not (tmp_path / "run" / "metrics.jsonl").exists()
