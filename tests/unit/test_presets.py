"""Presets are registered by their modules: the package's, installed ones and the user's."""

from __future__ import annotations

import importlib.metadata
import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest.mock import patch

import pytest

from nmt_cli import registry
from nmt_cli.errors import UsageError
from nmt_cli.presets import PRESETS, preset

Nmt = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def _own_presets() -> Iterator[None]:
    """What a test registers is forgotten after it."""
    registry.discover()
    with patch.dict(PRESETS):
        yield


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module that registers the preset `theirs`."""
    (tmp_path / "their_presets.py").write_text(
        "from nmt_cli.presets import preset\npreset('theirs', 'a small GNMT', model='gnmt', num_layers=3)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "their_presets", raising=False)
    return "their_presets"


def test_annexes_bring_their_own() -> None:
    assert PRESETS["transformer_base"].module == "nmt_cli.presets"
    assert PRESETS["parsing_wsj"].module == "nmt_cli.parsing.presets"
    assert PRESETS["gnmt_small"].module == "nmt_cli.table2.presets"


def test_a_module_of_the_user(nmt: Nmt, plugin: str) -> None:
    code, out, _ = nmt("train", "--import", plugin, "--list-presets", "--json")
    assert (code, json.loads(out)["theirs"]["differs"]) == (0, {"model": "gnmt", "num_layers": 3})
    code, out, _ = nmt("train", "--import", plugin, "--preset", "theirs", "--dry-run", "--json", "--vocab-size", 50)
    model = json.loads(out)["config"]["model"]
    assert (code, model["name"], model["num_layers"]) == (0, "gnmt", 3)
    assert "--init-range X" in nmt("train", "--import", plugin, "--preset", "theirs", "--help")[1]


def test_an_installed_module(plugin: str, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = importlib.metadata.EntryPoint("theirs", plugin, "nmt.presets")
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: [entry][group != entry.group :])
    registry.discover()
    assert PRESETS["theirs"] == ("a small GNMT", {"model": "gnmt", "num_layers": 3}, plugin)


def test_two_presets_cannot_share_a_name(plugin: str) -> None:
    preset("mine", "", num_layers=1)
    preset("mine", "", num_layers=1)  # a module may be loaded again
    with pytest.raises(UsageError, match=r"preset 'mine' is registered twice"):
        preset("mine", "", num_layers=2)
    preset("theirs", "a small GNMT", model="gnmt", num_layers=3)
    with pytest.raises(UsageError, match=f"preset 'theirs' .* by {re.escape(__name__)} and by {plugin}"):
        registry.discover([plugin])
