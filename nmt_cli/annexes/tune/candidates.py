"""The settings that `nmt tune` chooses from, and the settings of a training of some length."""

from __future__ import annotations

import random
import tomllib
from collections.abc import Mapping, Set
from pathlib import Path
from typing import Any

from nmt_cli import registry

Settings = dict[str, Any]
"""Settings of `nmt train` by name."""

SPACES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
LONGEST_WARMUP = 4000  # the paper's


def candidates(number: int, space: str, fixed: Set[str]) -> dict[str, Settings]:
    """Return up to so many different candidates by name. Each value is about equally frequent.

    Args:
        space: a table of candidates.toml.
        fixed: names of settings that are given.
    """
    generator = random.Random(1)
    drawn: list[Settings] = [{} for _ in range(number)]
    for name, values in SPACES[space].items():
        if fixed & {name, *values[0]}:
            continue
        repeated = [values[i % len(values)] for i in range(number)]
        generator.shuffle(repeated)
        for settings, value in zip(drawn, repeated, strict=True):
            settings |= value
    return {str(i + 1): drawn[i] for i in range(number) if drawn[i] not in drawn[:i]}


def of_length(steps: int, given: Mapping[str, Any]) -> Settings:
    """Return the settings of a training of so many steps.

    A tenth is warm-up. A schedule that has an end ends at the last step: without that, a short
    training would say little about a longer one.
    """
    settings: Settings = {"max_steps": steps}
    settings["warmup_steps"] = max(1, min(steps // 10, LONGEST_WARMUP))
    name = given.get("schedule", "linear_decay")
    if name in registry.names("schedule"):
        settings["schedule"] = name
        if "decay_steps" in registry.find("schedule", name).config.__dataclass_fields__:
            settings["decay_steps"] = steps
    return settings
