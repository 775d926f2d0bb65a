"""An optimizer's state as named tensors and JSON."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from nmt_cli.distributed import own_part, whole
from nmt_cli.errors import CheckpointError


def dump(optimizer: torch.optim.Optimizer) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return the scalars by parameter number and name, and the tensors under the names
    `NUMBER.NAME`; as `whole`.
    """
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
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
    """Load what `dump` returned; raise a CheckpointError with `place` if it does not fit the
    parameters.
    """
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    try:
        state: dict[int, dict[str, Any]] = {
            int(number): dict(values) for number, values in scalars.items()
        }
        for key, tensor in tensors.items():
            number, _, name = key.partition(".")
            own = own_part(tensor, parameters[int(number)])
            state.setdefault(int(number), {})[name] = own.clone()  # not the mapped file
            if own.numel() not in (1, parameters[int(number)].numel()):
                raise ValueError(f"{key} has {tensor.numel()} numbers")
        if not all(0 <= number < len(parameters) for number in state):
            raise ValueError(f"it has {len(state)} parameters, the model {len(parameters)}")
        optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
    except (ValueError, TypeError, AttributeError, KeyError, IndexError) as error:
        raise CheckpointError(
            f"{place}: the optimizer's state does not fit this model: {error}"
        ) from error
