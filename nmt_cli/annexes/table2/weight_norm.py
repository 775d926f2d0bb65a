"""Weight normalisation (Salimans and Kingma 2016): each row of a matrix is g v / |v|."""

from __future__ import annotations

import copy
import math
from typing import Any, TypeVar

from torch import nn
from torch.nn.utils.parametrizations import weight_norm
from torch.nn.utils.parametrize import is_parametrized

Layer = TypeVar("Layer", bound=nn.Module)


def normalised(layer: Layer, gain: float = 1.0) -> Layer:
    """Return `layer` with weight normalisation.

    Its weights begin from N(0, sqrt(gain / inputs)), its bias, if it has one, with zeros.
    """
    matrix: Any = layer
    nn.init.normal_(matrix.weight, std=math.sqrt(gain / matrix.weight.size(1)))
    if matrix.bias is not None:
        nn.init.zeros_(matrix.bias)
    weight_norm(layer)
    return layer


def folded(model: Layer) -> Layer:
    """Return a copy of `model` whose weights are normalised once and for all."""
    frozen = copy.deepcopy(model)
    layers: list[Any] = [module for module in frozen.modules() if is_parametrized(module)]
    for layer in layers:
        weight = nn.Parameter(layer.weight.detach())
        # `remove_parametrizations` would change the class, which the copy shares with `model`.
        layer.__class__ = type(layer).__base__
        del layer.parametrizations
        layer.weight = weight
    return frozen
