"""The presets: named models, each with only the settings that differ from the base model, as in
Table 3.

The defaults of all components are the base model and the training of section 5.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

from nmt_cli.errors import UsageError


class Preset(NamedTuple):
    """A named model: a description, the settings that differ from the base model, and the module
    that has it.
    """

    about: str
    differs: dict[str, Any]
    module: str


PRESETS: dict[str, Preset] = {}
"""The presets of all modules that have been imported: `registry.discover` imports those of annexes
and plug-ins.
"""


def preset(name: str, about: str, /, **differs: Any) -> None:
    """Register a preset; `differs` are settings of `nmt train`, where the name of a kind selects a
    component.

    Raises:
        UsageError: there is another preset of this name.
    """
    _register(name, Preset(about, differs, sys._getframe(1).f_globals["__name__"]))


def read_presets(module: str, path: str) -> None:
    """Register the presets of `module`, the file `path`: those in the TOML file of the same name, a
    table for each.

    Raises:
        UsageError: there is another preset of this name.
    """
    for name, settings in tomllib.loads(
        Path(path).with_suffix(".toml").read_text(encoding="utf-8")
    ).items():
        _register(name, Preset(settings.pop("about"), settings, module))


def _register(name: str, new: Preset) -> None:
    taken = PRESETS.setdefault(name, new)
    if taken != new:  # a module may be loaded again
        raise UsageError(
            f"preset {name!r} is registered twice: by {taken.module} and by {new.module}. Rename "
            "one."
        )


read_presets(__name__, __file__)
