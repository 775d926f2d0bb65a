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
    """Return `layer` with weight normalisation, weights from N(0, sqrt(gain / inputs)), and a bias of zeros."""
    weight, bias = (getattr(layer, name) for name in ("weight", "bias"))
    nn.init.normal_(weight, std=math.sqrt(gain / weight.size(1)))
    if bias is not None:
        nn.init.zeros_(bias)
    weight_norm(layer)
    return layer


def folded(model: Layer) -> Layer:
    """Return a copy of `model` whose weights are normalised once and for all."""
    frozen = copy.deepcopy(model)
    for module in filter(is_parametrized, list(frozen.modules())):
        _fold(module)
    return frozen


def _fold(layer: Any) -> None:
    """Give `layer` the weight that results.

    PyTorch's `remove_parametrizations` would change the class of `layer`, which it shares with those it is a copy of.
    """
    weight = nn.Parameter(layer.weight.detach())
    layer.__class__ = type(layer).__base__
    del layer.parametrizations
    layer.weight = weight
