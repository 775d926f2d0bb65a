"""Out of memory: the message names the batch and the setting, and the run can be resumed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nmt_cli import checkpoint, registry
from nmt_cli.commands.train import train
from nmt_cli.errors import TrainingError
from nmt_cli.training import trainer


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


def test_the_largest_batch_is_tried_first_and_changes_nothing(
    tiny_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    learn_from = trainer.Trainer.learn_from

    def watched(self: Any, indices: Any, tokens: int) -> Any:
        sizes.append(len(indices) * int(self.parts.plan.lengths(indices).sum()))
        return learn_from(self, indices, tokens)

    train(tiny_data, tmp_path / "without", SMALL, None, None, [])
    monkeypatch.setattr(trainer, "takes_a_trial", lambda world: True)
    monkeypatch.setattr(trainer.Trainer, "learn_from", watched)
    train(tiny_data, tmp_path / "with", SMALL, None, None, [])
    assert len(sizes) == 2 + 2  # two trials, two steps of one micro-batch
    assert sizes[0] == max(sizes)
    first, second = (checkpoint.load_weights(checkpoint.resolve(tmp_path / name)) for name in ("without", "with"))
    assert all((first[name] == second[name]).all() for name in first)


def test_out_of_memory_shows_before_the_first_step(
    tiny_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    def full(self: Any, *_: Any, **__: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(trainer, "takes_a_trial", lambda world: True)
    monkeypatch.setattr(torch.Tensor, "backward", full)
    with pytest.raises(TrainingError, match=r"out of memory.*--micro-batches 2"):
        train(tiny_data, tmp_path / "run", SMALL, None, None, [])
    assert not (tmp_path / "run" / "metrics.jsonl").exists()
