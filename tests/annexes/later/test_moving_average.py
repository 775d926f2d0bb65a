"""The moving average of the weights: its values, what uses it, and that training does not."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tiny_run
import torch
from like_a_gpu import like_a_gpu
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_avg_fn

from nmt_cli import checkpoint, registry
from nmt_cli.annexes.doctor.resume import contents
from nmt_cli.annexes.later.moving_average import MovingAverage
from nmt_cli.annexes.later.settings import MovingAverageConfig
from nmt_cli.commands.average import AverageOptions, average
from nmt_cli.data.batching import load_batch
from nmt_cli.data.corpus import Corpus
from nmt_cli.device import fast
from nmt_cli.distributed import World
from nmt_cli.errors import UsageError
from nmt_cli.training.gradients import Objective
from nmt_cli.training.run import RAW
from nmt_cli.training.validation import validation_loss
from nmt_cli.weights import load_model, load_training, load_weights

run = partial(tiny_run.run, max_steps=6, save_every=1, log_every=1)
DECAY = 0.4
"""Reached at the fifth step: (1 + 5) / (10 + 5)."""


@pytest.fixture(scope="module")
def averaged(tiny_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("averaged") / "run"
    run(tiny_data, out, ema_decay=DECAY)
    return out


def raw_weights(folder: Path) -> dict[str, Tensor]:
    tensors = load_training(folder).tensors
    return {
        name.removeprefix(RAW): tensor for name, tensor in tensors.items() if name.startswith(RAW)
    }


def test_it_is_that_of_torch_after_its_first_steps() -> None:
    model = nn.Linear(5, 3)
    run: Any = SimpleNamespace(model=model)
    our_average = MovingAverage(MovingAverageConfig(DECAY), run)
    for step in range(1, 5):
        our_average.updated(step)
    their_average = AveragedModel(model, avg_fn=get_ema_avg_fn(DECAY))
    their_average.update_parameters(model)  # the first time, it copies
    for step in range(5, 12):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.copy_(torch.randn_like(parameter))
        our_average.updated(step)
        their_average.update_parameters(model)
    for name, parameter in their_average.module.named_parameters():
        torch.testing.assert_close(our_average.average[name], parameter.detach())


def test_training_is_as_without_it_and_checkpoints_have_the_average(
    averaged: Path, tiny_data: Path, tmp_path: Path
) -> None:
    """The trained weights are bit for bit a plain run's. Their average is computed by hand."""
    run(tiny_data, tmp_path / "plain")
    plain = [load_weights(folder) for folder in checkpoint.checkpoints_of(tmp_path / "plain")]
    folders = checkpoint.checkpoints_of(averaged)
    for expected, folder in zip(plain, folders, strict=True):
        raw = raw_weights(folder)
        assert raw.keys() == expected.keys()
        assert all(torch.equal(raw[name], weight) for name, weight in expected.items())
    means = [
        {name: weight.double() for name, weight in load_weights(folder).items()}
        for folder in folders
    ]
    for step in range(2, 7):
        d = min(DECAY, (1 + step) / (10 + step))
        for name, weight in means[step - 1].items():
            by_hand = d * means[step - 2][name] + (1 - d) * plain[step - 1][name].double()
            torch.testing.assert_close(weight, by_hand, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("packed", [False, True])
def test_a_run_resumes_bit_for_bit(
    packed: bool, averaged: Path, tiny_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if packed:
        like_a_gpu(monkeypatch)
        averaged = tmp_path / "whole"
        run(tiny_data, averaged, ema_decay=DECAY, compile=False)
    run(tiny_data, tmp_path / "parts", ema_decay=DECAY, max_steps=2, compile=False)
    run(tiny_data, tmp_path / "parts", ema_decay=DECAY, compile=False)
    resumed, expected = contents(tmp_path / "parts"), contents(averaged)
    assert resumed.pop("config.json")
    assert expected.pop("config.json")
    assert resumed == expected


def test_validation_is_of_the_average(averaged: Path, tiny_data: Path) -> None:
    """So it is the perplexity of the checkpoint, as `nmt translate` loads it."""
    registry.discover()
    criterion = registry.build(registry.find("criterion", "label_smoothed_cross_entropy").config())
    computing = fast(torch.device("cpu"))
    computing.fit(torch.nn.Module(), criterion)
    load = computing.loader(load_batch, None, bins=False)
    world, valid = World(0, 1, torch.device("cpu")), Corpus.open(tiny_data, "valid")
    for folder, record in zip(
        checkpoint.checkpoints_of(averaged), tiny_run.metrics(averaged), strict=True
    ):
        model, _ = load_model(folder)
        losses = validation_loss(
            Objective(model, criterion, "float32"), valid, world, load, tokens=4096
        )
        assert losses["loss"] == record["validation_loss"]


def test_it_can_be_averaged_and_not_changed(
    averaged: Path, tiny_data: Path, tmp_path: Path
) -> None:
    average(AverageOptions(paths=(averaged,), last=2, out=tmp_path / "mean"))
    last = [load_weights(folder) for folder in checkpoint.checkpoints_of(averaged)[-2:]]
    for name, weight in load_weights(tmp_path / "mean").items():
        torch.testing.assert_close(weight, (last[0][name] + last[1][name]) / 2)
    shutil.copytree(averaged, tmp_path / "run", symlinks=True)
    with pytest.raises(UsageError, match=r"--training\.ema-decay was 0\.4, now 0"):
        run(tiny_data, tmp_path / "run", max_steps=8)
