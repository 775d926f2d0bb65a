"""Layers of configuration, and what each refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nmt_cli import registry
from nmt_cli.config import RunConfig, file_values, flatten, resolve
from nmt_cli.errors import UsageError
from nmt_cli.presets import PRESETS, Preset
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
    assert {kind: registry.component_of(section).name for kind, section in config.components.items()} == {
        "model": "transformer",
        "attention": "full",
        "criterion": "label_smoothed_cross_entropy",
        "optimizer": "adam",
        "schedule": "inverse_sqrt",
    }
    assert all(section == type(section)() for section in config.components.values())


def test_each_layer_lies_over_the_one_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PRESETS, "mine", Preset("", {"d_ff": 1, "d_model": 2, "num_heads": 1, "dropout": 0.5}))
    file = written(tmp_path, "c.toml", "d_model = 30\nnum-heads = 3\n[training]\nseed = 7\n")
    config = resolved({"num_heads": 5, "max_steps": 9}, preset="mine", file=file)
    model = config["model"]
    assert (model.num_layers, model.d_ff, model.d_model, model.num_heads, model.dropout) == (6, 1, 30, 5, 0.5)
    assert (config.training.seed, config.training.max_steps, config.training.batch_tokens) == (7, 9, 25_000)


TOML_SECTIONS = """
[model]
d_model = 64
[optimizer]
beta2 = 0.9
[attention]
name = "restricted"
neighbourhood = 6
"""
JSON_SECTIONS = """{
    "model": {"name": "transformer", "d-model": 64},
    "optimizer": {"beta2": 0.9},
    "attention": {"name": "restricted", "neighbourhood": 6}
}"""


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("flat.toml", 'd_model = 64\nbeta2 = 0.9\nattention = "restricted"\nneighbourhood = 6\n'),
        ("dashes.toml", 'd-model = 64\nbeta2 = 0.9\nattention = "restricted"\nneighbourhood = 6\n'),
        ("sections.toml", TOML_SECTIONS),
        ("flat.json", '{"d_model": 64, "beta2": 0.9, "attention": "restricted", "neighbourhood": 6}'),
        ("sections.json", JSON_SECTIONS),
    ],
)
def test_files(tmp_path: Path, name: str, content: str) -> None:
    config = resolved(file=written(tmp_path, name, content))
    assert (config["model"].d_model, config["optimizer"].beta2, config["attention"].neighbourhood) == (64, 0.9, 6)


def test_what_is_written_as_json_is_read_again(tmp_path: Path) -> None:
    """A run's config.json and a checkpoint's are configuration files as they stand."""
    config = resolved(
        {"d_k": 16, "d_v": 8, "positions": "learned", "save_every": "10m", "dropout": 0.25, "patience": 3}
    )
    sections = config.to_json()
    run = written(tmp_path, "run.json", json.dumps({**sections, "data": "f00", "imports": ["plugin"]}))
    contents = {"schema": 1, "nmt": "0.1", "sections": sections, "step": 5, "run": "x", "shared_vocabulary": True}
    for file in (run, written(tmp_path, "checkpoint.json", json.dumps(contents))):
        assert resolved(file=file) == config
    assert resolved(flatten(sections, "here")) == config


def test_a_setting_of_the_users_called_data_is_unknown_all_the_same(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no setting called 'data'"):
        resolved(file=written(tmp_path, "c.json", '{"data": "x"}'))


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"d_modle": 3}, r"the command line: there is no setting called 'd_modle'. Did you mean d_model"),
        ({"optimizer": "adm"}, r"no optimizer called 'adm'.*adam"),
        ({"neighbourhood": 4}, r"--neighbourhood belongs to the attention restricted.*add --attention restricted"),
        ({"d_model": "wide"}, r"the command line: --d-model must be of type int, not 'wide'"),
        ({"d_model": 2.0}, r"--d-model must be of type int, not 2.0"),
        ({"d_model": True}, r"--d-model must be of type int, not True"),
        ({"d_model": None}, r"--d-model must be of type int, not None"),
        ({"validation_bleu": 1}, r"--validation-bleu must be of type bool, not 1"),
        ({"dropout": "0.1"}, r"--dropout must be of type float"),
        ({"save_every": 1.5}, r"--save-every must be of type str or int, not 1.5"),
        ({"micro_batches": "x"}, r"--micro-batches must be of type int, not 'x'"),
        ({"d_model": 1}, r"--d-model must be at least 2, not 1"),
        ({"dropout": 1.0}, r"--dropout must be at most 0.99, not 1.0"),
        ({"dropout": float("nan")}, r"--dropout must be a finite number, not nan"),
        ({"learning_rate_scale": float("inf")}, r"--learning-rate-scale must be a finite number"),
        ({"norm": "posst"}, r"--norm must be one of post, pre, not 'posst'. Did you mean post\?"),
        ({"save_every": "often"}, r"--save-every takes a number of steps.*not 'often'"),
        ({"validate_every": "0"}, r"--validate-every takes a number of steps"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(flags: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        resolved(flags)


def test_optional_values_may_be_none_and_whole_numbers_are_numbers() -> None:
    config = resolved({"d_k": None, "dropout": 0, "save_every": 5})
    assert config["model"].d_k is None
    assert config["model"].dropout == 0.0
    assert isinstance(config["model"].dropout, float)
    assert config.training.save_every == 5


def test_an_error_names_its_layer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = written(tmp_path, "c.toml", "d_model = 'wide'\n")
    with pytest.raises(UsageError, match=rf"^{file}: --d-model must be of type int"):
        resolved(file=file)
    monkeypatch.setitem(PRESETS, "mine", Preset("", {"d_ff": 0}))
    with pytest.raises(UsageError, match=r"^preset mine: --d-ff must be at least 1"):
        resolved(preset="mine")
    assert resolved({"d_ff": 5}, preset="mine")["model"].d_ff == 5


def test_what_a_dataclass_itself_refuses_names_its_layer_too(tmp_path: Path) -> None:
    file = written(tmp_path, "c.toml", "save_every = 0\n")
    with pytest.raises(UsageError, match=rf"^{file}: --save-every takes a number of steps"):
        resolved({"max_steps": 5}, file=file)
    with pytest.raises(UsageError, match=r"^the command line: --save-every takes a number of steps"):
        resolved({"save_every": "0"}, file=written(tmp_path, "d.toml", "max_steps = 5\n"))


def test_an_unknown_preset_is_told_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"no preset called 'table3_C_N3'. Did you mean table3_C_N\d.*--list-presets"):
        resolved(preset="table3_C_N3")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("c.json", "{", "not a JSON file"),
        ("c.toml", "d_model =", "not a TOML file"),
        ("c.yaml", "d_model: 1", "YAML is not supported"),
        ("c.yml", "d_model: 1", "YAML is not supported"),
        ("c.json", "[1]", "expected an object of settings by name, found list"),
        ("c.json", "[" * 100_000, "not a JSON file"),
    ],
)
def test_files_that_are_none(tmp_path: Path, name: str, content: str, message: str) -> None:
    file = written(tmp_path, name, content)
    with pytest.raises(UsageError, match=f"^{file}: {message}"):
        file_values(file)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"absent.toml: cannot read this configuration file: No such file"):
        file_values(tmp_path / "absent.toml")
    (tmp_path / "latin.json").write_bytes(b'{"seed": "\xe9"}')
    with pytest.raises(UsageError, match=r"latin.json: not a JSON file"):
        file_values(tmp_path / "latin.json")


def test_a_field_that_two_components_share_is_named_with_its_section(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from nmt_cli.optim.adam import AdamConfig

    component = registry.find("schedule", "inverse_sqrt")
    twice = registry.Component("schedule", "twice", component.build, AdamConfig, "their.module")
    monkeypatch.setitem(registry._components["schedule"], "twice", twice)
    monkeypatch.setitem(PRESETS, "mine", Preset("", {"beta1": 0.1}))
    with pytest.raises(UsageError, match=r"^the command line: --beta1 .*--optimizer\.beta1.*--schedule\.beta1"):
        resolved({"schedule": "twice", "beta1": 0.5})
    file = written(tmp_path, "c.toml", "schedule.name = 'twice'\nschedule.beta1 = 0.3\noptimizer.beta2 = 0.4")
    config = resolved({"schedule.beta2": 0.5}, preset="mine", file=file)  # a preset means the paper's components
    assert [(config[kind].beta1, config[kind].beta2) for kind in ("optimizer", "schedule")] == [(0.1, 0.4), (0.3, 0.5)]


@pytest.mark.parametrize("name", ["optimizer.d_model", "optimzer.beta1", "training.beta1"])
def test_a_setting_in_the_wrong_section(name: str) -> None:
    with pytest.raises(UsageError, match=rf"^the command line: .*{name}"):
        resolved({name: 3})


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_resolves(preset: str) -> None:
    config = resolved(preset=preset)
    assert resolved(flatten(config.to_json(), "here")) == config
