"""Components are registered, found, built and discovered."""

from __future__ import annotations

import copy
import importlib.metadata
import re
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from nmt_cli import registry
from nmt_cli.config import DEFAULT_COMPONENTS
from nmt_cli.errors import UsageError
from nmt_cli.registry import Component, build, component_of, discover, find, names, option, register


@dataclass(frozen=True)
class WheelConfig:
    spokes: int = option(32, "Number of spokes.")


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
    assert register("model", "wheel", WheelConfig)(wheel) is wheel
    assert find("model", "wheel") == Component("model", "wheel", wheel, WheelConfig, __name__)
    assert component_of(WheelConfig()).name == "wheel"
    assert build(WheelConfig(spokes=8), radius=0.5) == (8, 0.5)
    assert "wheel" in names("model")
    assert [component.name for component in registry.components("model")] == names("model") == sorted(names("model"))
    register("schedule", "wheel", Other)(wheel)  # one name may serve two kinds
    assert find("schedule", "wheel").config is Other


def test_unknown_names() -> None:
    with pytest.raises(UsageError, match=r"optimizer.*'adm'.*adam\?"):
        find("optimizer", "adm")
    with pytest.raises(UsageError, match=r"Known: alibi, full, relative, restricted, rotary\..*--import"):
        find("attention", "xyzzy")
    with pytest.raises(UsageError, match=r"'modle'. Did you mean model\?"):
        register("modle", "wheel", WheelConfig)
    with pytest.raises(UsageError, match="Other"):
        build(Other())


def test_a_builder_with_other_arguments_is_named_and_an_error_inside_it_is_not_hidden() -> None:
    def faulty(config: Other, *, radius: float) -> None:
        if radius:
            wheel(WheelConfig(), raduis=radius)  # type: ignore[call-arg]

    register("model", "faulty", Other)(faulty)
    for runtime, words in (({}, "radius"), ({"radius": 1, "width": 2}, "width"), ({"radius": 0}, "None")):
        with pytest.raises(UsageError, match=rf"model 'faulty' of the module {__name__}.*{words}"):
            build(Other(), **runtime)
    with pytest.raises(TypeError, match="raduis"):
        build(Other(), radius=1)


@pytest.mark.parametrize(
    "name", ["", ".", "..", "./", "./plugin", "plugin.py", "./plugin.py", "/tmp/plugin", "a/plugin"]
)
def test_a_path_is_not_a_module(name: str) -> None:
    with pytest.raises(UsageError, match=rf"--import {re.escape(name)}: .*PYTHONPATH=\S+ nmt .*--import \w+$"):
        discover([name])


@pytest.mark.parametrize("content", ["1 / 0", "def f(:", "raise ValueError('no')", "x = '\0'"])
def test_a_module_whose_import_fails_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str) -> None:
    (tmp_path / "failing_plugin.py").write_text(content)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UsageError, match=r"--import failing_plugin: .*Error: "):
        discover(["failing_plugin"])


def test_a_config_must_be_a_dataclass() -> None:
    with pytest.raises(TypeError, match="dataclass"):
        register("model", "wheel", dict)


@pytest.mark.parametrize("module", [__name__, "their.plugin"])
def test_two_components_cannot_share_a_name(module: str) -> None:
    register("model", "wheel", WheelConfig)(wheel)
    register("model", "wheel", WheelConfig)(wheel)  # a module may be loaded again

    def stranger(config: Other) -> None: ...

    stranger.__module__ = module
    with pytest.raises(UsageError, match=rf"model 'wheel'.* twice: by {__name__} and by {re.escape(module)}"):
        register("model", "wheel", Other)(stranger)
    assert find("model", "wheel").build is wheel


def test_the_papers_components_are_discovered() -> None:
    for kind, name in {**DEFAULT_COMPONENTS, "task": "translation"}.items():
        assert find(kind, name).module.startswith("nmt_cli.")


PLUGIN = """
from dataclasses import dataclass
from nmt_cli.registry import option, register

@dataclass(frozen=True)
class ConstantConfig:
    rate: float = option(0.1, "the rate", minimum=0.0)

@register("schedule", "steady", ConstantConfig)
class Constant:
    def __init__(self, config, *, d_model):
        self.rate = config.rate
    def __call__(self, step):
        return self.rate
"""


def test_a_module_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "their_schedule.py").write_text(PLUGIN)
    monkeypatch.syspath_prepend(tmp_path)
    discover(["their_schedule"])
    schedule = build(find("schedule", "steady").config(rate=0.5), d_model=8)
    assert schedule(3) == 0.5
    assert find("schedule", "steady").module == "their_schedule"
    sys.modules.pop("their_schedule")


def test_a_module_that_is_not_there() -> None:
    with pytest.raises(UsageError, match=r"--import no_such_module_here: cannot import it.*PYTHONPATH"):
        discover(["no_such_module_here"])


def install(monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    """Install an entry point, as a package does."""
    entry = importlib.metadata.EntryPoint("theirs", module, "nmt.components")
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: [entry][group != entry.group :])


def test_entry_points_are_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "their_installed.py").write_text(PLUGIN.replace("steady", "installed"))
    monkeypatch.syspath_prepend(tmp_path)
    install(monkeypatch, "their_installed")
    discover()
    assert "installed" in names("schedule")


def test_a_broken_entry_point_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, "their_package.module")
    with pytest.raises(UsageError, match=r"entry point theirs = their_package\.module: cannot import it"):
        discover()


def test_only_the_given_directories_and_entry_points_are_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    imported: list[str] = []
    original = importlib.import_module
    monkeypatch.setattr(importlib, "import_module", lambda name: imported.append(name) or original(name))  # type: ignore[func-returns-value]
    discover(homes=("tasks",))
    assert imported
    assert all(name.startswith(("nmt_cli.tasks", "nmt_cli.parsing", "nmt_cli.table2.presets")) for name in imported)
