"""The presets: named models, each with the settings that differ from the base model, as in Table 3.

The defaults of all components are the base model and the training of section 5.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

from nmt_cli.errors import UsageError


class Preset(NamedTuple):
    """A named model."""

    about: str
    differs: dict[str, Any]  # settings unlike the base model's
    module: str  # of Python, which registers it
    aliases: tuple[str, ...] = ()  # its names in other programs


PRESETS: dict[str, Preset] = {}
"""The presets of all modules that have been imported, as `registry.discover` does."""


def preset(name: str, about: str, /, **differs: Any) -> None:
    """Register a preset.

    Args:
        differs: settings of `nmt train`. The name of a kind selects a component.

    Raises:
        UsageError: there is another preset of this name.
    """
    _register(name, Preset(about, differs, sys._getframe(1).f_globals["__name__"]))


def read_presets(module: str, path: str) -> None:
    """Register the presets in a TOML file, a table for each, which may have `aliases`.

    Args:
        path: the file of the `module`, beside the TOML file of the same name.

    Raises:
        UsageError: there is another preset of this name.
    """
    text = Path(path).with_suffix(".toml").read_text(encoding="utf-8")
    for name, settings in tomllib.loads(text).items():
        about = settings.pop("about")
        aliases = settings.pop("aliases", ())
        _register(name, Preset(about, settings, module, tuple(aliases)))


def find_preset(name: str) -> Preset | None:
    """Return the preset of this name, or else of this alias, or None."""
    of_aliases = {alias: other for other in PRESETS.values() for alias in other.aliases}
    return PRESETS.get(name, of_aliases.get(name))


def _register(name: str, new: Preset) -> None:
    present = PRESETS.setdefault(name, new)
    if present != new:  # a module may be loaded again
        raise UsageError(
            f"preset {name!r} is registered twice: by {present.module} and by {new.module}. "
            "Rename one."
        )


read_presets(__name__, __file__)
