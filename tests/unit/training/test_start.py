"""Settings by device and model size: precision, which a resumed run keeps, and compiled layers."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_run import SIZES, built, run
from torch import nn

from nmt_cli import registry
from nmt_cli.commands.train import TrainOptions
from nmt_cli.data.batching import BatchPlan
from nmt_cli.data.corpus import Indices, Pairs
from nmt_cli.data.sentences import Sentences
from nmt_cli.device import UNFIT
from nmt_cli.errors import DataError, UsageError
from nmt_cli.fast.cpu.device import Fast
from nmt_cli.registry import option
from nmt_cli.training import start
from nmt_cli.training.costs import flops_of_update
from nmt_cli.training.messages import about_kernels
from nmt_cli.training.origin import Origin
from nmt_cli.training.run_directory import CONFIG
from nmt_cli.training.start import agreed_kernels, configuration, drawing_processes, open_data


@pytest.mark.parametrize("recorded", ["bfloat16", "float32"])
def test_a_run_keeps_its_precision(tmp_path: Path, recorded: str) -> None:
    registry.discover()
    content = {"training": {"precision": recorded}, "data": {"path": "data"}, "imports": []}
    (tmp_path / CONFIG).write_text(json.dumps(content))
    for flags, expected in (({}, recorded), ({"precision": "float32"}, "float32")):
        assert configuration(TrainOptions(out=tmp_path), flags).training.precision == expected


@pytest.mark.parametrize(
    ("troubles", "expected"), [(("", "no compiler"), True), (("no compiler", ""), False)]
)
def test_a_run_keeps_its_kernels(
    tiny_data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    troubles: tuple[str, str],
    expected: bool,
) -> None:
    """It has them again later, though they have failed, and none that did not work at its start."""
    for step, trouble in enumerate(troubles, start=1):
        kernels = {"loss": trouble, "attention": UNFIT}
        monkeypatch.setattr(Fast, "check_kernels", lambda *_, kernels=kernels: kernels)
        run(tiny_data, tmp_path / "run", max_steps=step)
        warned = (
            "warning: kernels for nothing; not for loss: no compiler" in capsys.readouterr().err
        )
        assert warned == bool(trouble)
        content = json.loads((tmp_path / "run" / CONFIG).read_text())
        assert content["training"]["kernels"] is expected


def test_kernels_that_a_run_does_not_want(
    tiny_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run from before there were any goes on without."""
    monkeypatch.setattr(Fast, "check_kernels", lambda *_: pytest.fail("they are checked"))
    run(tiny_data, tmp_path, max_steps=1, kernels=False)
    content = json.loads((tmp_path / CONFIG).read_text())
    del content["training"]["kernels"]
    (tmp_path / CONFIG).write_text(json.dumps(content))
    run(tiny_data, tmp_path, max_steps=2)
    assert json.loads((tmp_path / CONFIG).read_text())["training"]["kernels"] is False


def test_a_kernel_that_fails_on_a_rank_is_used_on_none() -> None:
    of_ranks = [{"loss": "", "ReLU": ""}, {"loss": "no compiler", "ReLU": ""}]
    expected = {"loss": "no compiler", "ReLU": ""}
    assert agreed_kernels(of_ranks) == agreed_kernels(of_ranks[::-1]) == expected
    assert about_kernels(expected) == "for ReLU; not for loss: no compiler"


@pytest.mark.parametrize(
    ("modules", "named"),
    [({"growth": "my_package.growth"}, "my_package.growth"), ({}, "an annex of nmt")],
)
def test_a_setting_of_a_missing_package(
    tmp_path: Path, modules: dict[str, str], named: str
) -> None:
    """The run would go on without what it was started with.

    Runs of version 1.0 do not say where a setting is from.
    """
    registry.discover()
    training = {"precision": "float32", "growth": 3}
    content = {"training": training, "data": {"path": "data"}, "imports": [], "modules": modules}
    (tmp_path / CONFIG).write_text(json.dumps(content))
    with pytest.raises(
        UsageError, match=f"its setting training.growth needs .*{named}.* Install it, or name it"
    ):
        configuration(TrainOptions(out=tmp_path), {})


class Shout(Sentences):
    def text(self, epoch: int, numbers: Indices, pairs: Pairs) -> Pairs:
        return pairs


def test_processes_of_a_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only where the text changes, and can be drawn elsewhere."""

    def plan(change: Sentences) -> BatchPlan:
        return BatchPlan(np.ones(2), np.ones(2), 9, 1, changes=[change])

    monkeypatch.setattr(start, "available_cores", lambda: 24)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    unpicklable = Shout()
    unpicklable.lines = lambda epochs: []  # type: ignore[method-assign]
    counts = [drawing_processes(plan(change)) for change in (Shout(), Sentences(), unpicklable)]
    assert counts == [12, 1, 1]
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "24")
    assert drawing_processes(plan(Shout())) == 1


def test_the_vocabulary_of_other_data(tiny_data: Path, tmp_path: Path) -> None:
    """Of the same size, it would train a model of other words without a word."""
    data = shutil.copytree(tiny_data, tmp_path / "data")
    open_data([str(data)])
    manifest = json.loads((data / "manifest.json").read_text())
    # The data's, not `task`'s.
    manifest["task"]["vocabularies"]["target"]["sha256"] = "0" * 64
    (data / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(DataError, match="task: not the vocabularies of these data"):
        open_data([str(data)])


@dataclass(frozen=True)
class BareConfig:
    """No settings."""


@pytest.mark.parametrize("kind", ["criterion", "model"])
def test_a_component_without_the_base_class_is_refused(
    tiny_data: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Version 1 took any object that can be called, and any module."""
    registry.discover()
    monkeypatch.setitem(registry._components, kind, dict(registry._components[kind]))

    @registry.register(kind, "bare", BareConfig)
    class Bare:
        def __init__(self, config: BareConfig, **runtime: object) -> None:
            pass

    sizes = SIZES if kind == "criterion" else {}
    config = configuration(TrainOptions(), sizes | {"device": "cpu", kind: "bare"})
    base = kind.capitalize()
    with pytest.raises(
        UsageError, match=rf"--{kind} bare: .*Bare must be a subclass of nmt_cli\.plugins\.{base}"
    ):
        built(config, tiny_data)


@dataclass(frozen=True)
class FirstConfig:
    only_the_first: bool = option(False, "Train the first parameter only.")


@pytest.mark.parametrize("used", [False, True])
def test_a_preparation_changes_the_model_before_its_optimizer_is_made(
    tiny_data: Path, monkeypatch: pytest.MonkeyPatch, used: bool
) -> None:
    """What it changes is not trained, and its record of the origin is the run's."""
    registry.discover()
    monkeypatch.setitem(registry._components, "preparation", {})

    @registry.register("preparation", "first", FirstConfig)
    def prepare(config: FirstConfig, *, model: nn.Module, origin: Any, **_: Any) -> Any:
        for parameter in list(model.parameters())[1:] if config.only_the_first else []:
            parameter.requires_grad_(False)
        return Origin({"path": "of the preparation"}, None) if config.only_the_first else origin

    config = configuration(TrainOptions(), SIZES | {"device": "cpu", "only_the_first": used})
    run = built(config, tiny_data)
    assert config.to_json()["training"]["only_the_first"] is used
    trained = [
        parameter for group in run.trainer.optimizer.param_groups for parameter in group["params"]
    ]
    everything = list(run.model.parameters())
    assert list(map(id, trained)) == list(map(id, everything[:1] if used else everything))
    assert run.contents["origin"] == ({"path": "of the preparation"} if used else None)
    lengths = np.array([5]), np.array([5])
    assert (flops_of_update(run.model, lengths) == {}) is used


@pytest.mark.parametrize("ranks", [1, 3])
def test_the_cost_is_that_of_all_ranks(tiny_data: Path, ranks: int) -> None:
    registry.discover()
    rates = {"sustained_tflops": 1.0, "peak_tflops": 1.0}
    config = configuration(TrainOptions(), SIZES | rates | {"device": "cpu"})
    run = built(config, tiny_data, ranks)
    assert run.costs.of(seconds=2.0).device_seconds == 2.0 * ranks
