"""Layers that compute their activations again in the backward pass."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from like_a_gpu import like_a_gpu
from tiny_run import run

from nmt_cli import checkpoint
from nmt_cli.errors import UsageError
from nmt_cli.models.transformer import DecoderLayer
from nmt_cli.weights import load_weights


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_the_updates_are_the_same_bit_for_bit(
    precision: str, packed: bool, tiny_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With every kind of dropout.

    Each layer is computed twice in an update, and once in validation.
    """
    forward, calls = DecoderLayer.forward, []

    def counted(*arguments: Any) -> torch.Tensor:
        calls.append(torch.is_grad_enabled())
        return forward(*arguments)

    monkeypatch.setattr(DecoderLayer, "forward", counted)
    if packed:
        like_a_gpu(monkeypatch)
    settings = {
        "dropout": 0.3,
        "attention_dropout": 0.2,
        "feed_forward_dropout": 0.2,
        "precision": precision,
        "max_steps": 4,
    }
    counts = []
    for name, again in (("kept", False), ("again", True)):
        calls.clear()
        run(tiny_data, tmp_path / name, **settings, compile=False, gradient_checkpointing=again)
        counts.append([calls.count(training) for training in (True, False)])
    assert counts[1] == [2 * counts[0][0], counts[0][1]]
    plain, again = (load_weights(checkpoint.locate(tmp_path / name)) for name in ("kept", "again"))
    assert all(torch.equal(again[name], weight) for name, weight in plain.items())


def test_a_model_that_cannot_is_refused(tiny_data: Path, tmp_path: Path) -> None:
    settings = {"model": "moe_transformer", "experts": 2, "gradient_checkpointing": True}
    with pytest.raises(UsageError, match="--gradient-checkpointing: "):
        run(tiny_data, tmp_path / "run", **settings)
    assert not (tmp_path / "run").exists()
