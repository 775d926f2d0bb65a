"""Parameters that keep their values (`nmt train --freeze`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

from torch import nn

from nmt_cli.errors import UsageError, nearest

GROUPS: Mapping[str, Sequence[str]] = {
    "embeddings": ("*_embedding.*", "*_positions.*"),
    "encoder": ("encoder*", "from_left.*", "from_right.*", "columns.*", "projection.*"),
    "decoder": ("decoder*", "bottom.*", "attention.*", "last.*"),
}
"""Patterns of the names that the parts of a model have, for all models of the toolkit."""


def freeze(model: nn.Module, patterns: Sequence[str]) -> None:
    """Exclude parameters from training: they get no gradient, and so no optimizer has them.

    Args:
        patterns: shell patterns that parameter names match as a whole, or names of `GROUPS`.

    Raises:
        UsageError: a pattern matches no parameter, or nothing is left to train.
    """
    parameters = dict(model.named_parameters())
    for pattern in patterns:
        frozen = [
            name for name in parameters if any(fnmatchcase(name, each) for each in GROUPS.get(pattern, [pattern]))
        ]
        if not frozen:
            listing = f"It takes {', '.join(GROUPS)}, or a pattern of names such as {next(iter(parameters))}."
            near = nearest(pattern, [*GROUPS, *parameters], listing)
            raise UsageError(f"--freeze {pattern}: the model has no parameter of this name. {near}")
        for name in frozen:
            parameters[name].requires_grad_(False)
    if not trained(model):
        raise UsageError(f"--freeze {' --freeze '.join(patterns)}: nothing is left to train; leave one of them out")


def trained(model: nn.Module) -> list[nn.Parameter]:
    """Return the parameters that are trained: those that are not frozen."""
    return [parameter for parameter in model.parameters() if parameter.requires_grad]
