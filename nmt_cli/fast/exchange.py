"""Methods of modules are exchanged for faster ones, which compute the same.

Weights, their names and hooks stay.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, TypeAlias

from torch import nn

Methods: TypeAlias = Mapping[Any, Any]
"""Methods of the core's classes, and what takes their place."""


def exchange(model: nn.Module, methods: Methods) -> None:
    """Give each module that has one of the `methods` a subclass of its class with the faster one.

    A subclass that has other lines keeps them. The modules of one class share the new one, and so
    compiled code. What was exchanged before is exchanged anew.
    """
    for module in model.modules():
        kind: Any = class_of(module)
        faster = []
        for old, method in methods.items():
            name = old.__name__
            if getattr(kind, name, None) is old:
                faster.append((name, method))
        if faster:
            module.__class__ = _with_methods(kind, tuple(faster))


@cache
def _with_methods(kind: Any, methods: tuple[tuple[str, Any], ...]) -> Any:
    """Return a subclass with these methods."""
    # They stand in a base class, as a kernel with a `forward` in its class loses its window.
    faster = type("Faster", (), dict(methods))
    return type(kind.__name__, (faster, kind), {"exchanged": kind})


def class_of(module: nn.Module) -> type[nn.Module]:
    """Return the class of a module, as it was before its lines were exchanged."""
    kind: type[nn.Module] = vars(type(module)).get("exchanged", type(module))
    return kind
