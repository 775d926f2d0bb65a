"""An optimizer's state as named tensors and JSON."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from nmt_cli.distributed import own_part, whole
from nmt_cli.errors import CheckpointError


def dump(optimizer: torch.optim.Optimizer) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return the scalars by parameter number and name, and the tensors under names `NUMBER.NAME`.

    On rank 0, the tensors of divided parameters are whole.
    """
    parameters = _parameters_of(optimizer)
    tensors: dict[str, Tensor] = {}
    scalars: dict[str, dict[str, Any]] = {}
    for number, state in optimizer.state_dict()["state"].items():
        for name, value in state.items():
            if isinstance(value, Tensor):
                tensors[f"{number}.{name}"] = whole(value, parameters[number])
            else:
                scalars.setdefault(str(number), {})[name] = value
    return scalars, tensors


def restore(
    optimizer: torch.optim.Optimizer,
    scalars: dict[str, dict[str, Any]],
    tensors: dict[str, Tensor],
    place: str,
) -> None:
    """Load what `dump` returned.

    Raises:
        CheckpointError: it does not fit the parameters. The message begins with `place`.
    """
    parameters = _parameters_of(optimizer)
    try:
        state: dict[int, dict[str, Any]] = {}
        for key, values in scalars.items():
            state[int(key)] = dict(values)
        for key, tensor in tensors.items():
            number, _, name = key.partition(".")
            parameter = parameters[int(number)]
            part = own_part(tensor, parameter)
            if part.numel() not in (1, parameter.numel()):
                raise ValueError(f"{key} has {tensor.numel()} numbers")
            # A copy: the checkpoint is mapped into memory, and its file may be deleted.
            state.setdefault(int(number), {})[name] = part.clone()
        if not all(0 <= number < len(parameters) for number in state):
            raise ValueError(f"it has {len(state)} parameters, the model {len(parameters)}")
        optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
    except (ValueError, TypeError, AttributeError, KeyError, IndexError) as error:
        message = f"{place}: the optimizer's state does not fit this model: {error}"
        raise CheckpointError(message) from error


def _parameters_of(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    """Return the parameters by their numbers in the optimizer's state."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]
