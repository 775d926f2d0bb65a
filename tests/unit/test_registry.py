"""Registering, finding and building components, and the words for what is not there."""

from __future__ import annotations

import copy
import importlib.metadata
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from nmt_cli import registry
from nmt_cli.errors import UsageError
from nmt_cli.registry import Component, build, component_of, discover, find, names, option, register


@dataclass(frozen=True)
class WheelConfig:
    spokes: int = option(32, "how many spokes", minimum=3, maximum=48)
    rim: str = option("steel", "what it is made of", choices=("steel", "wood"))


@dataclass(frozen=True)
class Other:
    pass


@pytest.fixture(autouse=True)
def _own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test registers is forgotten after it."""
    discover()
    monkeypatch.setattr(registry, "_components", {k: copy.copy(v) for k, v in registry._components.items()})


def wheel(config: WheelConfig, *, radius: float) -> tuple[int, float]:
    return config.spokes, radius


def test_a_component_is_found_and_built_by_its_config() -> None:
    register("model", "wheel", WheelConfig)(wheel)
    assert find("model", "wheel") == Component("model", "wheel", wheel, WheelConfig, __name__)
    assert component_of(WheelConfig()).name == "wheel"
    assert build(WheelConfig(spokes=8), radius=0.5) == (8, 0.5)
    assert "wheel" in names("model")
    assert names("model") == sorted(names("model"))
    assert [component.name for component in registry.components("model")] == names("model")


def test_the_decorated_thing_stays_itself() -> None:
    assert register("model", "wheel", WheelConfig)(wheel) is wheel


def test_an_unknown_name_is_told_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"no optimizer called 'adm' in nmt_cli.*'nmt.components'.*--import.*adam\?"):
        find("optimizer", "adm")


def test_where_nothing_is_near_all_are_listed() -> None:
    with pytest.raises(UsageError, match=r"Known: full, restricted\."):
        find("attention", "xyzzy")


def test_two_modules_of_one_name_are_both_named() -> None:
    register("model", "wheel", WheelConfig)(wheel)

    def stranger(config: Other) -> None: ...

    stranger.__module__ = "their.plugin"
    with pytest.raises(UsageError, match=rf"model 'wheel' is registered twice: by {__name__} and by their\.plugin"):
        register("model", "wheel", Other)(stranger)
    assert find("model", "wheel").build is wheel


def test_two_components_of_one_module_cannot_share_a_name() -> None:
    register("model", "wheel", WheelConfig)(wheel)

    def another(config: Other) -> None: ...

    with pytest.raises(UsageError, match="registered twice"):
        register("model", "wheel", Other)(another)


def test_a_module_may_be_loaded_again() -> None:
    register("model", "wheel", WheelConfig)(wheel)
    register("model", "wheel", WheelConfig)(wheel)


def test_one_name_may_serve_two_kinds() -> None:
    register("model", "wheel", WheelConfig)(wheel)
    register("schedule", "wheel", Other)(wheel)
    assert find("schedule", "wheel").config is Other


def test_an_unknown_kind() -> None:
    with pytest.raises(UsageError, match=r"no kind of component called 'modle'. Did you mean model\?"):
        register("modle", "wheel", WheelConfig)


def test_a_config_must_be_a_dataclass() -> None:
    with pytest.raises(TypeError, match="must be a dataclass"):
        register("model", "wheel", dict)


def test_a_config_of_nobody() -> None:
    with pytest.raises(UsageError, match="no registered component is configured by Other"):
        build(Other())


def test_options_carry_what_a_flag_needs() -> None:
    spokes, rim = WheelConfig.__dataclass_fields__.values()
    assert (spokes.default, spokes.metadata["help"]) == (32, "how many spokes")
    assert (spokes.metadata["minimum"], spokes.metadata["maximum"]) == (3, 48)
    assert rim.metadata["choices"] == ("steel", "wood")


def test_the_paper_s_components_are_discovered() -> None:
    assert {kind: "transformer" in names(kind) for kind in ("model", "task")} == {"model": True, "task": False}
    for kind, name in (
        ("attention", "full"),
        ("attention", "restricted"),
        ("criterion", "label_smoothed_cross_entropy"),
        ("optimizer", "adam"),
        ("schedule", "inverse_sqrt"),
        ("task", "translation"),
    ):
        assert find(kind, name).module.startswith("nmt_cli.")


PLUGIN = """
from dataclasses import dataclass
from nmt_cli.registry import option, register

@dataclass(frozen=True)
class ConstantConfig:
    rate: float = option(0.1, "the rate", minimum=0.0)

@register("schedule", "constant", ConstantConfig)
class Constant:
    def __init__(self, config, *, d_model):
        self.rate = config.rate
    def __call__(self, step):
        return self.rate
"""


def test_a_module_of_the_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "their_schedule.py").write_text(PLUGIN)
    monkeypatch.syspath_prepend(tmp_path)
    discover(["their_schedule"])
    schedule = build(find("schedule", "constant").config(rate=0.5), d_model=8)
    assert schedule(3) == 0.5
    assert find("schedule", "constant").module == "their_schedule"
    sys.modules.pop("their_schedule")


def test_a_module_that_is_not_there() -> None:
    with pytest.raises(UsageError, match=r"--import no_such_module_here: cannot import it.*PYTHONPATH"):
        discover(["no_such_module_here"])


class Entry:
    """An installed package's promise in the group `nmt.components`."""

    name, value = "theirs", "their_package.module"

    def __init__(self, load: Any) -> None:
        self.load = load


def test_entry_points_are_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    def load() -> None:
        register("model", "wheel", WheelConfig)(wheel)

    def entry_points(group: str) -> list[Entry]:
        return [Entry(load)] if group == "nmt.components" else []

    monkeypatch.setattr(importlib.metadata, "entry_points", entry_points)
    discover()
    assert "wheel" in names("model")


def test_a_broken_entry_point_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def load() -> None:
        raise ImportError("No module named 'their_package'")

    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: [Entry(load)])
    with pytest.raises(UsageError, match=r"entry point theirs = their_package\.module: cannot import it"):
        discover()


def test_only_the_homes_that_are_asked_for_are_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that `nmt prepare` needs no torch."""
    loaded: list[str] = []
    original = registry.importlib.import_module
    monkeypatch.setattr(registry.importlib, "import_module", lambda name: loaded.append(name) or original(name))  # type: ignore[func-returns-value]
    discover(homes=("tasks",))
    assert loaded
    assert all(name.startswith("nmt_cli.tasks") for name in loaded)
