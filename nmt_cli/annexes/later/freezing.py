"""Parameters that keep their values (`nmt train --freeze`)."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any

from torch import nn

from nmt_cli.annexes.later.settings import FreezeConfig
from nmt_cli.errors import UsageError, nearest
from nmt_cli.model import Model


def freeze_parts(config: FreezeConfig, *, model: Model, **_: Any) -> None:
    """Freeze what the settings name: a preparation of a run."""
    if config.freeze:
        freeze(model, config.freeze)


def freeze(model: Model, patterns: Sequence[str]) -> None:
    """Exclude from training what the patterns name.

    Args:
        patterns: names of parts of the model, or shell patterns of its parameters' names.

    Raises:
        UsageError: a pattern matches no parameter, or nothing is left to train.
    """
    parameters = dict(model.named_parameters())
    parts = model.parts()
    for pattern in patterns:
        frozen: list[nn.Parameter] = []
        for part in parts.get(pattern, ()):
            frozen += part.parameters()
        if not frozen:
            frozen = [parameters[name] for name in parameters if fnmatchcase(name, pattern)]
        if not frozen:
            listing = f"a pattern of names such as {next(iter(parameters))}"
            if parts:
                listing = f"{', '.join(parts)} or {listing}"
            near = nearest(pattern, [*parts, *parameters], f"It takes {listing}.")
            raise UsageError(f"--freeze {pattern}: the model has no parameter of this name. {near}")
        for parameter in frozen:
            parameter.requires_grad_(False)
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise UsageError(f"--freeze {' --freeze '.join(patterns)}: nothing is left to train")
