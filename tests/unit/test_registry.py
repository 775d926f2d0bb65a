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
    monkeypatch.setattr(
        registry, "_components", {k: copy.copy(v) for k, v in registry._components.items()}
    )


def wheel(config: WheelConfig, *, radius: float) -> tuple[int, float]:
    return config.spokes, radius


def test_a_component_is_found_and_built_by_its_config() -> None:
    assert register("model", "wheel", WheelConfig)(wheel) is wheel
    assert find("model", "wheel") == Component("model", "wheel", wheel, WheelConfig, __name__)
    assert component_of(WheelConfig()).name == "wheel"
    assert build(WheelConfig(spokes=8), radius=0.5) == (8, 0.5)
    assert (
        [component.name for component in registry.components("model")]
        == names("model")
        == sorted(names("model"))
    )
    register("schedule", "wheel", Other)(wheel)  # one name may serve two kinds
    assert find("schedule", "wheel").config is Other


def test_unknown_names() -> None:
    with pytest.raises(UsageError, match=r"optimizer.*'adm'.*adam or adamw\?"):
        find("optimizer", "adm")
    with pytest.raises(UsageError, match=r"Known: alibi, .*rotary\..*--import"):
        find("attention", "xyzzy")
    with pytest.raises(UsageError, match=r"'modle'. Did you mean model\?"):
        register("modle", "wheel", WheelConfig)
    with pytest.raises(UsageError, match="Other"):
        build(Other())


@pytest.mark.parametrize("module", [__name__, "their.plugin"])
def test_two_components_cannot_share_a_name(module: str) -> None:
    register("model", "wheel", WheelConfig)(wheel)
    register("model", "wheel", WheelConfig)(wheel)  # a module may be loaded again

    def stranger(config: Other) -> None: ...

    stranger.__module__ = module
    with pytest.raises(
        UsageError, match=rf"model 'wheel'.* twice: by {__name__} and by {re.escape(module)}"
    ):
        register("model", "wheel", Other)(stranger)
    assert find("model", "wheel").build is wheel


PLUGIN = """
from dataclasses import dataclass
from nmt_cli.registry import option, register

@dataclass(frozen=True)
class ConstantConfig:
    rate: float = option(0.1, "the rate", minimum=0.0)

@register("schedule", "steady", ConstantConfig)
def steady(config, *, d_model):
    return lambda step: config.rate
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of modules."""
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("their_plugin", "failing_plugin"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


def install(monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    """Install an entry point, as a package does."""
    entry = importlib.metadata.EntryPoint("theirs", module, "nmt.components")
    monkeypatch.setattr(registry, "entry_points", lambda group: [entry][group != entry.group :])


def test_an_installed_module(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """tests/unit/test_cli.py imports one that the user names."""
    (place / "their_plugin.py").write_text(PLUGIN)
    install(monkeypatch, "their_plugin")
    discover()
    assert build(find("schedule", "steady").config(rate=0.5), d_model=8)(3) == 0.5
    assert find("schedule", "steady").module == "their_plugin"


@pytest.mark.parametrize(
    "name", ["", "no_such_module", "./plugin", "plugin.py", "/tmp/plugin", "failing_plugin"]
)
def test_a_module_that_cannot_be_imported_is_named(name: str, place: Path) -> None:
    (place / "failing_plugin.py").write_text("\n1 / 0")
    advice = (
        r"ZeroDivisionError in .*failing_plugin\.py, line 2" if name == "failing_plugin" else ""
    )
    with pytest.raises(
        UsageError, match=rf"^--import {re.escape(name)}: cannot import it: .*{advice}"
    ):
        discover([name])


def test_the_metadata_of_packages_are_read_once() -> None:
    assert len(registry.entry_points("nmt.tasks")) > 0
    assert len(registry.entry_points("nmt.no_such_group")) == 0
    assert registry._all_entry_points.cache_info().misses == 1


def test_an_entry_point_that_cannot_be_imported_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, "their_package.module")
    with pytest.raises(UsageError, match=r"theirs = their_package\.module: "):
        discover()


def test_only_the_given_directories_and_entry_points_are_imported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    imported: list[str] = []
    original = importlib.import_module
    monkeypatch.setattr(
        importlib, "import_module", lambda name: imported.append(name) or original(name)
    )  # type: ignore[func-returns-value]
    discover(homes=("tasks",))
    expected = {entry.module for entry in importlib.metadata.entry_points(group="nmt.tasks")}
    assert (
        set(imported)
        == {"nmt_cli.tasks", "nmt_cli.tasks.base", "nmt_cli.tasks.translation"} | expected
    )


def test_a_plugin_in_a_package_is_told_where_moved_names_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "their_components").mkdir()
    (tmp_path / "their_components" / "loss.py").write_text("from nmt_cli.moved import Criterion\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UsageError, match=r"loss\.py, line 1\. .*nmt_cli\.plugins"):
        registry.discover(["their_components.loss"])
