"""Layers of configuration, and what each refuses."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from nmt_cli import registry
from nmt_cli.config import RunConfig, file_values, flatten, resolve
from nmt_cli.errors import UsageError
from nmt_cli.presets import PRESETS, Preset
from nmt_cli.registry import option
from nmt_cli.training.observers import Observer
from nmt_cli.training.settings import TrainingConfig

registry.discover()


def resolved(flags: dict[str, Any] | None = None, **layers: Any) -> RunConfig:
    return resolve(TrainingConfig, flags or {}, **layers)


def written(folder: Path, name: str, content: str) -> Path:
    (folder / name).write_text(content, encoding="utf-8")
    return folder / name


def test_defaults_are_the_papers() -> None:
    config = resolved()
    assert config.training == TrainingConfig()
    assert {
        kind: registry.component_of(section).name for kind, section in config.components.items()
    } == {
        "model": "transformer",
        "attention": "full",
        "criterion": "label_smoothed_cross_entropy",
        "optimizer": "adam",
        "schedule": "inverse_sqrt",
    }
    assert all(section == type(section)() for section in config.components.values())


def test_each_layer_lies_over_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(
        PRESETS,
        "mine",
        Preset("", {"d_ff": 1, "d_model": 2, "num_heads": 1, "dropout": 0.5}, "here"),
    )
    file = written(tmp_path, "c.toml", "d_model = 30\nnum-heads = 3\n[training]\nseed = 7\n")
    config = resolved({"num_heads": 5, "max_steps": 9}, preset="mine", file=file)
    model = config["model"]
    assert (model.num_layers, model.d_ff, model.d_model, model.num_heads, model.dropout) == (
        6,
        1,
        30,
        5,
        0.5,
    )
    assert (config.training.seed, config.training.max_steps, config.training.batch_tokens) == (
        7,
        9,
        25_000,
    )


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("dashes.toml", 'd-model = 64\nbeta2 = 0.9\nattention = "restricted"\nneighbourhood = 6\n'),
        (
            "sections.toml",
            "[model]\nd-model = 64\n[optimizer]\nbeta2 = 0.9\n"
            '[attention]\nname = "restricted"\nneighbourhood = 6',
        ),
        ("flat.yml", "d-model: 64\nbeta2: 9e-1\nattention: restricted\nneighbourhood: 6\n"),
        (
            "sections.yaml",
            "model: {d-model: 64}\noptimizer:\n  beta2: .9\nattention: {name: restricted, "
            "neighbourhood: 6}",
        ),
        (
            "flat.json",
            '{"d_model": 64, "optimizer.beta2": 0.9, '
            '"attention": "restricted", "neighbourhood": 6}',
        ),
    ],
)
def test_files(tmp_path: Path, name: str, content: str) -> None:
    config = resolved(file=written(tmp_path, name, content))
    assert (
        config["model"].d_model,
        config["optimizer"].beta2,
        config["attention"].neighbourhood,
    ) == (64, 0.9, 6)


def test_the_config_json_of_runs_and_checkpoints_is_a_configuration_file(tmp_path: Path) -> None:
    config = resolved(
        {
            "d_k": 16,
            "d_v": 8,
            "positions": "learned",
            "save_every": "10m",
            "dropout": 0.25,
            "patience": 3,
        }
    )
    sections = config.to_json()
    run = written(
        tmp_path, "run.json", json.dumps({**sections, "data": "f00", "imports": ["plugin"]})
    )
    contents = {
        "schema": 1,
        "nmt": "0.1",
        "sections": sections,
        "step": 5,
        "run": "x",
        "shared_vocabulary": True,
    }
    for file in (run, written(tmp_path, "checkpoint.json", json.dumps(contents))):
        assert resolved(file=file) == config
    assert resolved(flatten(sections, "here")) == config


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        ({"d_modle": 3}, "d_model"),
        ({"data": "x"}, "no setting called 'data'"),
        ({"optimizer.d_model": 3}, "optimizer.d_model"),
        ({"optimzer.beta1": 3}, "optimzer.beta1"),
        ({"optimizer": "adm"}, "adam"),
        (
            {"neighbourhood": 4},
            "belongs to the attention restricted, not to full.* --attention restricted",
        ),
        (
            {"model": "gnmt", "d_ff": 8},
            "the model .*moe and moe_transformer and transformer, not to gnmt.* --model .*moe or",
        ),
        *[({"d_model": value}, "--d-model .* int") for value in ("wide", 2.5, math.inf, True)],
        ({"d_model": 1}, "--d-model .* 2"),
        ({"d_ff": 1 << 63}, "--d-ff must be at most 2,147,483,647"),
        ({"freeze": 1}, "--freeze must be of type list, not 1"),
        ({"freeze": ["encoder", 1]}, "--freeze must be of type str, not 1"),
        *[({"dropout": value}, "--dropout") for value in ("0.1", 1.0, float("nan"))],
        ({"save_every": "often"}, "--save-every"),
        ({"precision": "\udcff"}, "--precision must be text in UTF-8"),
        ({"norm": "posst"}, r"--norm .* post\?"),
    ],
)
def test_the_message_for_a_wrong_setting_names_it(flags: dict[str, Any], named: str) -> None:
    with pytest.raises(UsageError, match=f"^(?=--|there is ).*{named}"):
        resolved(flags)


def test_a_component_of_a_later_layer_drops_the_settings_that_only_the_former_has(
    tmp_path: Path,
) -> None:
    assert PRESETS["bytenet_small"].differs.keys() >= {"schedule", "learning_rate"}
    config = resolved({"schedule": "linear_decay"}, preset="bytenet_small")
    assert registry.component_of(config["schedule"]).name == "linear_decay"
    file = written(
        tmp_path,
        "c.toml",
        "schedule = 'constant'\nlearning_rate = 0.5\nwarmup_steps = 7\nseed = 3\n",
    )
    config = resolved({"schedule": "linear_decay"}, file=file)
    # What the new one has as well is kept.
    assert (config["schedule"].warmup_steps, config.training.seed) == (7, 3)
    with pytest.raises(UsageError, match=r"^--learning-rate .*constant.*linear_decay"):
        resolved({"schedule": "linear_decay", "learning_rate": 0.5})
    with pytest.raises(
        UsageError,
        match=rf"^{file}: --learning-rate belongs to the schedule constant, not to inverse",
    ):
        resolved(file=written(tmp_path, "c.toml", "learning_rate = 0.5\n"))


def test_the_peak_of_a_later_layer_takes_the_place_of_a_scale(tmp_path: Path) -> None:
    """And a scale of a peak.

    A file that a run wrote has both: the one that it was not begun with by its default.
    """
    assert PRESETS["quickstart"].differs["learning_rate_scale"] == 0.5
    schedule = resolved({"peak_learning_rate": 0.001}, preset="quickstart")["schedule"]
    assert (schedule.peak_learning_rate, schedule.learning_rate_scale) == (0.001, 1.0)
    content = '{"schedule": {"learning_rate_scale": 1.0, "peak_learning_rate": 0.002}}'
    file = written(tmp_path, "c.json", content)
    assert resolved(file=file, preset="quickstart")["schedule"].peak_learning_rate == 0.002
    schedule = resolved({"schedule": "linear_decay", "learning_rate_scale": 0.3}, file=file)[
        "schedule"
    ]
    assert (schedule.peak_learning_rate, schedule.learning_rate_scale) == (None, 0.3)
    file = written(
        tmp_path, "c.json", '{"schedule": {"learning_rate_scale": 0.3, "peak_learning_rate": null}}'
    )
    assert resolved(file=file, preset="quickstart")["schedule"].learning_rate_scale == 0.3
    with pytest.raises(UsageError, match=r"^--peak.*-rate .*--learning-rate-scale"):
        resolved({"peak_learning_rate": 0.001, "learning_rate_scale": 0.5})


def test_optional_values_may_be_none_and_whole_numbers_are_numbers() -> None:
    config = resolved({"d_k": None, "dropout": 0, "save_every": 5, "max_steps": 2e3})
    assert (config.training.max_steps, type(config.training.max_steps)) == (2000, int)
    assert config["model"].d_k is None
    assert config["model"].dropout == 0.0
    assert isinstance(config["model"].dropout, float)
    assert config.training.save_every == 5


def test_a_file_may_choose_a_preset(tmp_path: Path) -> None:
    file = written(tmp_path, "c.yaml", "preset: transformer_big\nd_ff: 8\n")
    assert (resolved(file=file)["model"].d_model, resolved(file=file)["model"].d_ff) == (1024, 8)
    assert resolved(file=file, preset="transformer_base")["model"].d_model == 512
    for wrong in ("transformer_bigg", "[1]"):
        with pytest.raises(UsageError, match=r"c\.\w+: there is no preset called"):
            resolved(file=written(tmp_path, "c.yaml", f"preset: {wrong}\n"))


def test_an_error_names_its_origin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = written(tmp_path, "c.toml", "d_model = 'wide'\n")
    with pytest.raises(UsageError, match=rf"^{file}: --d-model must be of type int"):
        resolved({"d_ff": 5}, file=file)
    monkeypatch.setitem(PRESETS, "mine", Preset("", {"d_ff": 0}, "here"))
    with pytest.raises(UsageError, match=r"^preset mine: --d-ff must be at least 1"):
        resolved(preset="mine")
    assert resolved({"d_ff": 5}, preset="mine")["model"].d_ff == 5
    own_file = written(tmp_path, "own.toml", "save_every = 0\n")  # refused by the dataclass itself
    with pytest.raises(UsageError, match=rf"^{own_file}: --save-every"):
        resolved({"max_steps": 5}, file=own_file)


def test_devices_and_large_files_are_not_read(tmp_path: Path) -> None:
    with (tmp_path / "large.json").open("wb") as file:
        file.truncate(1 << 40)
    for path in (Path("/dev/zero"), tmp_path / "large.json"):
        with pytest.raises(UsageError, match=f"^{path}: "):
            file_values(path)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("c.json", "{"),
        ("c.toml", "d_model ="),
        ("c.json", '{"d-ff": 1, "d_ff": 2}'),
        ("c.json", "[1]"),
        ("c.json", "[" * 100_000),
        ("c.toml", "a = " + "[" * 100_000),
        ("c.json", '{"seed": "\xe9"}'),
        ("absent.json", None),
    ],
)
def test_damaged_and_missing_files(tmp_path: Path, name: str, content: str | None) -> None:
    if content is not None:
        (tmp_path / name).write_text(content, encoding="latin-1")
    with pytest.raises(UsageError, match=f"^{tmp_path / name}: "):
        file_values(tmp_path / name)


def test_a_field_that_two_components_share_is_named_with_its_section(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from nmt_cli.optim.adam import AdamConfig

    component = registry.find("schedule", "inverse_sqrt")
    twice = registry.Component("schedule", "twice", component.build, AdamConfig, "their.module")
    monkeypatch.setitem(registry._components["schedule"], "twice", twice)
    monkeypatch.setitem(PRESETS, "mine", Preset("", {"beta1": 0.1}, "here"))
    with pytest.raises(UsageError, match=r"^--beta1 .*--optimizer\.beta1.*--schedule\.beta1"):
        resolved({"schedule": "twice", "beta1": 0.5})
    file = written(
        tmp_path, "c.toml", "schedule.name = 'twice'\nschedule.beta1 = 0.3\noptimizer.beta2 = 0.4"
    )
    # A preset means the paper's components.
    config = resolved({"schedule.beta2": 0.5}, preset="mine", file=file)
    assert [(config[kind].beta1, config[kind].beta2) for kind in ("optimizer", "schedule")] == [
        (0.1, 0.4),
        (0.3, 0.5),
    ]


@pytest.fixture
def noisy(monkeypatch: pytest.MonkeyPatch) -> type[Any]:
    """The settings of an observer that is registered for one test."""

    @dataclass(frozen=True)
    class NoisyConfig:
        loudness: float = option(0.0, "How loud.", minimum=0.0)
        colour: str = option("red", "Its colour.", may_change=True)

    monkeypatch.setattr(
        registry, "_components", {kind: dict(known) for kind, known in registry._components.items()}
    )
    registry.register("observer", "noisy", NoisyConfig)(Observer)
    return NoisyConfig


def test_settings_of_extras_are_in_the_section_of_the_loop(
    tmp_path: Path, noisy: type[Any]
) -> None:
    file = written(tmp_path, "c.toml", "[training]\nloudness = 2\nseed = 7\n")
    config = resolved({"training.colour": "blue"}, file=file)
    assert config.extras["noisy"] == noisy(loudness=2.0, colour="blue")
    assert config.used("observer") == [config.extras["noisy"]]
    section = config.to_json()["training"]
    assert (section["loudness"], section["colour"], section["seed"]) == (2.0, "blue", 7)
    identity = config.identity()["training"]
    assert {"loudness", "seed"} <= identity.keys()
    assert not {"colour", "max_steps"} & identity.keys()
    assert resolved().used("observer") == []
    with pytest.raises(UsageError, match=r"c\.toml: --loudness must be at least 0"):
        resolved(file=written(tmp_path, "c.toml", "loudness = -1\n"))


def test_two_extras_cannot_have_the_same_setting(noisy: type[Any]) -> None:
    registry.register("observer", "noisier", dataclass(frozen=True)(type("Noisier", (noisy,), {})))(
        Observer
    )
    with pytest.raises(UsageError, match=r"two dataclasses .*'loudness'"):
        resolved()
