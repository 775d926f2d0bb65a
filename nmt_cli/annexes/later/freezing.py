"""Parameters that keep their values (`nmt train --freeze`)."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any

from nmt_cli.annexes.later.settings import FreezeConfig
from nmt_cli.errors import UsageError, nearest
from nmt_cli.model import Model


def freeze_parts(config: FreezeConfig, *, model: Model, **_: Any) -> None:
    if config.freeze:
        freeze(model, config.freeze)


def freeze(model: Model, patterns: Sequence[str]) -> None:
    """Exclude from training the parts of the model, or else the parameters, whose names match a
    shell pattern.

    Raises:
        UsageError: a pattern matches no parameter, or nothing is left to train.
    """
    parameters = dict(model.named_parameters())
    parts = model.parts()
    for pattern in patterns:
        frozen = [parameter for part in parts.get(pattern, ()) for parameter in part.parameters()]
        frozen = frozen or [parameters[name] for name in parameters if fnmatchcase(name, pattern)]
        if not frozen:
            takes = [
                *filter(None, [", ".join(parts)]),
                f"a pattern of names such as {next(iter(parameters))}",
            ]
            near = nearest(pattern, [*parts, *parameters], f"It takes {' or '.join(takes)}.")
            raise UsageError(f"--freeze {pattern}: the model has no parameter of this name. {near}")
        for parameter in frozen:
            parameter.requires_grad_(False)
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise UsageError(f"--freeze {' --freeze '.join(patterns)}: nothing is left to train")
