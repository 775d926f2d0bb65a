"""An optimizer's state as plain named tensors and JSON, and back."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from nmt_cli.errors import CheckpointError


def dump(optimizer: torch.optim.Optimizer) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Scalars by parameter number and name, and tensors called `NUMBER.NAME`."""
    tensors: dict[str, Tensor] = {}
    scalars: dict[str, dict[str, Any]] = {}
    for number, state in optimizer.state_dict()["state"].items():
        for name, value in state.items():
            if isinstance(value, Tensor):
                tensors[f"{number}.{name}"] = value
            else:
                scalars.setdefault(str(number), {})[name] = value
    return scalars, tensors


def restore(
    optimizer: torch.optim.Optimizer, scalars: dict[str, dict[str, Any]], tensors: dict[str, Tensor], origin: str
) -> None:
    """Gives the optimizer the state that `dump` took.

    Raises:
        CheckpointError: the state belongs to other parameters.
    """
    content = optimizer.state_dict()
    try:
        state: dict[int, dict[str, Any]] = {int(number): dict(values) for number, values in scalars.items()}
        for key, tensor in tensors.items():
            number, _, name = key.partition(".")
            state.setdefault(int(number), {})[name] = tensor
        content["state"] = state
        _check_shapes(optimizer, state, origin)
        optimizer.load_state_dict(content)
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        raise CheckpointError(f"{origin}: not the state of this optimizer: {error}") from error


def _check_shapes(optimizer: torch.optim.Optimizer, state: dict[int, dict[str, Any]], origin: str) -> None:
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    for number, values in state.items():
        for name, value in values.items():
            fits = 0 <= number < len(parameters) and (
                not isinstance(value, Tensor) or value.numel() in (1, parameters[number].numel())
            )
            if not fits:
                raise CheckpointError(f"{origin}: the optimizer's {name} of parameter {number} does not fit this model")
