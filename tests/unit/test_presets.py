"""Presets are registered by their modules: the package's, installed ones and the user's."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest.mock import patch

import pytest

from nmt_cli import registry
from nmt_cli.errors import UsageError
from nmt_cli.presets import PRESETS, Preset, find_preset, preset

Nmt = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def _own_presets() -> Iterator[None]:
    """What a test registers is forgotten after it."""
    registry.discover()
    with patch.dict(PRESETS):
        yield


def test_a_module_of_the_user(nmt: Nmt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "their_presets.py").write_text(
        "from nmt_cli.presets import preset\npreset('theirs', 'a small GNMT', model='gnmt', "
        "num_layers=3)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "their_presets", raising=False)
    imported = ("train", "--import", "their_presets")
    code, out, _ = nmt(*imported, "--list-presets", "--json")
    assert (code, json.loads(out)["theirs"]["differs"]) == (0, {"model": "gnmt", "num_layers": 3})
    code, out, _ = nmt(*imported, "--preset", "theirs", "--dry-run", "--json", "--vocab-size", 50)
    model = json.loads(out)["config"]["model"]
    assert (code, model["name"], model["num_layers"]) == (0, "gnmt", 3)
    assert "--init-range X" in nmt(*imported, "--preset", "theirs", "--help")[1]


def test_two_presets_cannot_share_a_name() -> None:
    preset("mine", "", num_layers=1)
    preset("mine", "", num_layers=1)  # a module may be loaded again
    with pytest.raises(
        UsageError, match=rf"preset 'mine' is registered twice: by {__name__} and by {__name__}"
    ):
        preset("mine", "", num_layers=2)


def test_the_name_of_another_program(nmt: Nmt) -> None:
    """fairseq's transformer_iwslt_de_en has 4 heads and a feed-forward layer of 1024."""
    flags = ("--dry-run", "--json", "--vocab-size", 50, "--preset")
    code, out, _ = nmt("train", *flags, "transformer_iwslt_de_en")
    model = json.loads(out)["config"]["model"]
    assert (code, model["num_heads"], model["d_ff"]) == (0, 4, 1024)
    assert "iwslt14, transformer_iwslt_de_en: " in nmt("train", "--list-presets")[1]
    listing = json.loads(nmt("train", "--list-presets", "--json")[1])
    assert listing["iwslt14"]["aliases"] == ["transformer_iwslt_de_en"]


def test_a_preset_of_the_user_comes_before_an_alias(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = Preset("mine", {}, "mine")
    monkeypatch.setitem(PRESETS, "transformer_iwslt_de_en", mine)
    assert find_preset("transformer_iwslt_de_en") is mine
    assert find_preset("transformer_wmt_en_de") is PRESETS["transformer_base"]


def test_a_name_belongs_to_one_preset() -> None:
    aliases = [alias for one in PRESETS.values() for alias in one.aliases]
    assert len({*PRESETS, *aliases}) == len(PRESETS) + len(aliases)


@pytest.mark.parametrize("columns", [40, 80])
def test_the_list_of_presets_cuts_nothing(
    nmt: Nmt, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = nmt("train", "--list-presets")[1].splitlines()
    settings = " ".join(line.strip() for line in lines if line.startswith("    ")).split()
    values = [
        f"{name}={value}" for preset in PRESETS.values() for name, value in preset.differs.items()
    ]
    assert settings == values
    assert all(len(line) <= columns for line in lines if len(line.split()) > 1)
