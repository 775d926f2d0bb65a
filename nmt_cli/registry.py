"""Components by kind and name: register, find, build, discover.

A component and the frozen dataclass that configures it share a file; the dataclass's fields are its flags:

    @dataclass(frozen=True)
    class AdamConfig:
        beta2: float = option(0.98, "Adam's second decay rate")

    @register("optimizer", "adam", AdamConfig)
    def adam(config: AdamConfig, *, parameters): ...
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import importlib.metadata
import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from nmt_cli.errors import UsageError, nearest

KINDS = ("task", "model", "attention", "criterion", "optimizer", "schedule")
"""Every kind of component; a run selects one of each, and the kind is the flag that selects it (`--optimizer adam`)."""

HOMES = ("tasks", "models", "layers", "criteria", "optim")
_ENTRY_POINTS = "nmt.components"

REQUIRED = dataclasses.MISSING
"""The default of an option that must be given."""

Builder = TypeVar("Builder", bound=Callable[..., Any])


@dataclass(frozen=True)
class Component:
    """One registered component.

    `build` is called as `build(config, **runtime)`; `config` is its dataclass; `module` says where it comes from.
    """

    kind: str
    name: str
    build: Callable[..., Any]
    config: type[Any]
    module: str


_components: dict[str, dict[str, Component]] = {kind: {} for kind in KINDS}


def option(
    default: Any,
    help: str,
    *,
    choices: Sequence[str] = (),
    minimum: float | None = None,
    maximum: float | None = None,
    metavar: str = "",
    names: Sequence[str] = (),
) -> Any:
    """A dataclass field that becomes a flag: its default, its help line and the values that it may take.

    Args:
        default: `REQUIRED` for none.
        metavar: how help shows the value; by default N, X, FILE or NAME, by the field's type.
        names: the flag's names where they are not made of the field's, as ("--input", "-i").
    """
    metadata = {"help": help, "choices": tuple(choices), "minimum": minimum, "maximum": maximum}
    return field(default=default, metadata={**metadata, "metavar": metavar, "names": tuple(names)})


def argument(metavar: str, help: str, default: Any = REQUIRED) -> Any:
    """A dataclass field that becomes a positional argument of a command."""
    return field(default=default, metadata={"help": help, "metavar": metavar, "positional": True})


def register(kind: str, name: str, config: type[Any]) -> Callable[[Builder], Builder]:
    """Registers the decorated class or function under `kind` and `name`, configured by the dataclass `config`.

    Raises:
        UsageError: the kind is unknown, or another component has taken the name.
        TypeError: `config` is not a frozen dataclass (a mistake of the programmer).
    """
    if kind not in _components:
        raise UsageError(f"there is no kind of component called {kind!r}. {nearest(kind, KINDS)}")
    if not dataclasses.is_dataclass(config):
        raise TypeError(f"the configuration of {kind} {name!r} must be a dataclass, not {config!r}")

    def add(builder: Builder) -> Builder:
        taken = _components[kind].get(name)
        same = taken is not None and (taken.module, taken.build.__qualname__) == (
            builder.__module__,
            builder.__qualname__,
        )
        if taken is not None and not same:  # a module that is loaded again may register again
            raise UsageError(
                f"{kind} {name!r} is registered twice: by {taken.module} and by {builder.__module__}. Rename one "
                f"of them."
            )
        _components[kind][name] = Component(kind, name, builder, config, builder.__module__)
        return builder

    return add


def discover(imports: Sequence[str] = (), homes: Sequence[str] = HOMES) -> None:
    """Imports every module that may register components: the package's own, entry points, then `imports`.

    Args:
        homes: the folders of the package to look into; `nmt prepare` needs no model, and so no torch.

    Raises:
        UsageError: a module of `imports` or an entry point cannot be imported.
    """
    for home in homes:
        package = importlib.import_module(f"nmt_cli.{home}")
        for module in pkgutil.iter_modules(package.__path__):
            importlib.import_module(f"nmt_cli.{home}.{module.name}")
    for entry in importlib.metadata.entry_points(group=_ENTRY_POINTS):
        _load(entry.load, f"entry point {entry.name} = {entry.value}")
    for name in imports:
        _load(functools.partial(importlib.import_module, name), f"--import {name}")


def _load(load: Callable[[], Any], origin: str) -> None:
    try:
        load()
    except ImportError as error:
        raise UsageError(
            f"{origin}: cannot import it: {error}. Is the package installed, or its folder on PYTHONPATH?"
        ) from error


def names(kind: str) -> list[str]:
    """The registered names of a kind, sorted."""
    return sorted(_components[kind])


def components(kind: str) -> list[Component]:
    """The registered components of a kind, by name."""
    return [_components[kind][name] for name in names(kind)]


def find(kind: str, name: str) -> Component:
    """The component registered under `kind` and `name`.

    Raises:
        UsageError: there is none; the message says where was looked and offers the nearest names.
    """
    try:
        return _components[kind][name]
    except KeyError:
        raise UsageError(
            f"there is no {kind} called {name!r} in nmt_cli, in the entry points {_ENTRY_POINTS!r} or in --import "
            f"modules. {nearest(name, _components[kind])}"
        ) from None


def component_of(config: Any) -> Component:
    """The component that the dataclass instance `config` configures."""
    for kind in KINDS:
        for component in _components[kind].values():
            if component.config is type(config):
                return component
    raise UsageError(f"no registered component is configured by {type(config).__name__}; was its module imported?")


def build(config: Any, **runtime: Any) -> Any:
    """Builds the component that `config` configures; what is known only when running comes as keywords."""
    return component_of(config).build(config, **runtime)
