"""The objective of an update, and gradients in float16, in which a CPU autocasts too."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tiny_run import metrics, run
from torch import Tensor, nn

from nmt_cli import checkpoint, registry
from nmt_cli.annexes.doctor.resume import contents
from nmt_cli.criteria.label_smoothed_cross_entropy import LabelSmoothedCrossEntropy
from nmt_cli.errors import TrainingError
from nmt_cli.interfaces import Batch, Loss
from nmt_cli.training.gradients import Objective
from nmt_cli.weights import load_training


class Adding(nn.Linear):
    """A layer that wants small weights."""

    def added_loss(self) -> Tensor:
        return self.weight.square().sum()


def test_terms_of_layers_are_added_for_each_target_token() -> None:
    """Then the division by the tokens of an update leaves their mean.

    The negative log-likelihood is as it was.
    """
    model = nn.Sequential(nn.Linear(2, 2), Adding(2, 3, bias=False), Adding(3, 2, bias=False))
    loss = Loss(torch.tensor(5.0), torch.tensor(4.0), num_tokens=7)
    batch: Any = SimpleNamespace(source=torch.zeros(1))
    total, nll = Objective(model, lambda model, batch: loss, "float32")(batch)
    torch.testing.assert_close(
        total, 5 + 7 * sum(layer.weight.square().sum() for layer in (model[1], model[2]))
    )
    assert nll == 4


FLOAT16 = {"precision": "float16", "dropout": 0.3}


class Steep(LabelSmoothedCrossEntropy):
    """A loss with the same value, and a gradient 2^`power` times as large."""

    power = 10

    def __call__(self, model: Any, batch: Batch) -> Loss:
        loss = super().__call__(model, batch)
        steep = loss.total * 2.0**self.power
        return Loss(loss.total.detach() + steep - steep.detach(), loss.nll, loss.num_tokens)


@pytest.fixture
def steep(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Steep]]:
    component = registry.find("criterion", "label_smoothed_cross_entropy")
    object.__setattr__(component, "build", Steep)
    yield Steep
    object.__setattr__(component, "build", LabelSmoothedCrossEntropy)


def saved(out: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The run's state and the scaler's, at its last checkpoint."""
    values = load_training(checkpoint.locate(out)).values
    return values["state"], values["scaler"]


@pytest.mark.usefixtures("steep")
def test_overflows_lower_the_scale_and_a_run_resumes_bit_for_bit(
    tiny_data: Path, tmp_path: Path
) -> None:
    """The first part ends between two of them.

    They are no updates, but do not count as ones that failed.
    """
    settings = FLOAT16 | {"non_finite_budget": 0, "save_every": 2, "log_every": 2}
    run(tiny_data, tmp_path / "whole", **settings)
    run(tiny_data, tmp_path / "parts", **settings | {"max_steps": 2})
    first, scaler = saved(tmp_path / "parts")
    assert scaler["scale"] == 65536 / 4
    run(tiny_data, tmp_path / "parts", **settings)
    assert contents(tmp_path / "parts") == contents(tmp_path / "whole")
    last, scaler = saved(tmp_path / "whole")
    overflows = 16 - torch.tensor(scaler["scale"]).log2().item()
    assert 2 < overflows == 12 - scaler["_growth_tracker"] < 12
    assert last["skipped"] == first["total"]["loss"] == 0 < last["total"]["loss"]


def test_the_gradient_does_not_depend_on_the_scale(tiny_data: Path, tmp_path: Path) -> None:
    runs = {"float32": {}, "float16": FLOAT16}
    for name, settings in runs.items():
        run(tiny_data, tmp_path / name, **settings | {"dropout": 0.0}, max_steps=1)
    exact, low = (metrics(tmp_path / name)[0] for name in runs)
    assert low["gradient_norm"] == pytest.approx(exact["gradient_norm"], rel=1e-2)


def test_a_gradient_that_no_scale_can_help_stops_the_run(
    steep: type[Steep], tiny_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steep, "power", 100)
    with pytest.raises(TrainingError, match=r"step 18: .*norm (inf|nan) "):
        run(tiny_data, tmp_path / "run", **FLOAT16, non_finite_budget=1, max_steps=30)
