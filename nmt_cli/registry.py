"""Components by kind and name: register, find, build, discover.

A component and the frozen dataclass that configures it are in one file. The dataclass's fields are
its flags:

    @dataclass(frozen=True)
    class AdamConfig:
        beta2: float = option(0.98, "Adam's beta_2")

    @register("optimizer", "adam", AdamConfig)
    def adam(config: AdamConfig, *, parameters): ...

The dataclasses of components that need torch are in the `settings.py` of their directory, with the
place of each builder, so that `nmt train --help` imports no torch:

    @configures("model", "transformer", "nmt_cli.models.transformer:Transformer")
    @dataclass(frozen=True)
    class TransformerConfig:
"""

from __future__ import annotations

import dataclasses
import importlib
import importlib.metadata
import importlib.util
import pkgutil
import sys
import traceback
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from nmt_cli.errors import UsageError, nearest, shown

KINDS = ("task", "model", "attention", "criterion", "optimizer", "schedule")
"""A run has one component of each kind; the flag of that name selects it (`--optimizer adam`)."""

EXTRAS = (
    *("around", "encoding", "search", "length_penalty", "constraint"),  # of a translation
    *("observer", "sentences", "preparation"),  # of a run
    "filter",  # of prepared data
)
"""Kinds of which a run or a translation has any number: those with a flag that is not at its
default.
"""

# The directories of the package that have components.
HOMES = ("tasks", "models", "layers", "criteria", "optim")
# The groups of entry points: modules of annexes and plug-ins.
GROUPS = ("nmt.tasks", "nmt.components", "nmt.presets")
REQUIRED = dataclasses.MISSING  # the default of an option that must be given

Builder = TypeVar("Builder", bound=Callable[..., Any])
Config = TypeVar("Config", bound=type[Any])


@dataclass(frozen=True)
class Component:
    """A registered component: `build(config, **runtime)` returns it, where `config` is an instance
    of its dataclass.
    """

    kind: str
    name: str
    build: Callable[..., Any]
    config: type[Any]
    module: str

    @property
    def about(self) -> str:
        """A line about the component: the beginning of its module's docstring."""
        loaded = sys.modules.get(self.module)
        text = docstring(self.module) if loaded is None else loaded.__doc__ or ""
        return " ".join(text.partition("\n\n")[0].split())


_components: dict[str, dict[str, Component]] = {kind: {} for kind in (*KINDS, *EXTRAS)}


def option(
    default: Any,
    help: str,
    *,
    choices: Collection[str] = (),
    minimum: float | None = None,
    maximum: float | None = None,
    metavar: str = "",
    names: Sequence[str] = (),
    suggestions: Callable[[], Iterable[str]] = tuple,
    instead_of: str = "",
    may_change: bool = False,
    needs: str = "",
    written: bool = False,
) -> Any:
    """Return a dataclass field that becomes a flag.

    Args:
        default: `REQUIRED` if the flag must be given.
        choices: the allowed values; they are read when they are needed, so that they can be
            registered ones.
        metavar: the value's name in the help; by default N, X, FILE or NAME, by the field's type.
        suggestions: what a shell completes, besides the choices.
        instead_of: another field of the dataclass: a preset's or a file's value of it is dropped if
            this one is given.
        may_change: a resumed run may have another value. It has no effect on an update but rounding
            and dropout.
        needs: another field of the dataclass, which must be given on the command line, too.
        written: it is a file that is written beside the output.
        names: the flag's names if they are not made of the field's name, such as ("--input", "-i").
    """
    metadata = {
        "help": help,
        "choices": choices,
        "minimum": minimum,
        "maximum": maximum,
        "metavar": metavar,
        "names": tuple(names),
        "suggestions": suggestions,
        "instead_of": instead_of,
        "may_change": may_change,
        "needs": needs,
        "written": written,
    }
    return field(default=default, metadata=metadata)


def group(title: str, options: type[Any], without: Collection[str] = ()) -> Any:
    """Return a dataclass field for an instance of the dataclass `options`: a group of flags with a
    title.

    Args:
        without: the names of fields, here and in inner groups, and of extras that have no flags in
            this command.
    """
    return field(default_factory=options, metadata={"title": title, "without": frozenset(without)})


def extras(*kinds: str) -> Any:
    """Return a dataclass field for the configurations of registered extras by name: a group of
    flags for each.
    """
    return field(default_factory=dict, hash=False, metadata={"extras": kinds})


def argument(metavar: str, help: str, default: Any = REQUIRED) -> Any:
    """Return a dataclass field that becomes a positional argument of a command."""
    return field(default=default, metadata={"help": help, "metavar": metavar, "positional": True})


def register(kind: str, name: str, config: type[Any]) -> Callable[[Builder], Builder]:
    """Register the decorated class or function as the component `name`, configured by the dataclass
    `config`.

    A class replaces a component of this name that it is a subclass of.
    """
    if kind not in _components:
        raise UsageError(f"there is no kind of component called {kind!r}. {nearest(kind, KINDS)}")

    def add(build: Builder) -> Builder:
        taken = _components[kind].get(name)
        origin = (build.__module__, build.__qualname__)
        # A module may be loaded again.
        again = taken is not None and (taken.module, taken.build.__qualname__) == origin
        if taken is not None and not again and not _extends(build, taken.build):
            where = f"by {taken.module} and by {build.__module__}"
            raise UsageError(f"{kind} {name!r} is registered twice: {where}. Rename one.")
        _components[kind][name] = Component(kind, name, build, config, build.__module__)
        return build

    return add


def _extends(build: Any, other: Any) -> bool:
    return isinstance(build, type) and isinstance(other, type) and issubclass(build, other)


def configures(kind: str, name: str, place: str) -> Callable[[Config], Config]:
    """Register the decorated dataclass as that of a component whose builder is imported from
    `place`, module:name.
    """

    def build(config: Any, **runtime: Any) -> Any:
        return pkgutil.resolve_name(place)(config, **runtime)

    def add(config: Config) -> Config:
        register(kind, name, config)(build)
        return config

    build.__module__, _, build.__qualname__ = place.partition(":")
    return add


def docstring(module: str) -> str:
    """Return the docstring that the source of a module begins with, without importing the module."""
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        return ""
    before, _, following = Path(spec.origin).read_text(encoding="utf-8").partition('"""')
    return "" if before.strip() else following.partition('"""')[0]


def discover(imports: Sequence[str] = (), homes: Sequence[str] = HOMES) -> None:
    """Import the modules that register components and presets: the package's own, entry points, and
    `imports`.

    Args:
        homes: the directories of the package to search: `settings.py`, or all modules where there
            is none. `nmt prepare` needs tasks only. Then only the entry points of tasks are loaded,
            too.

    Raises:
        UsageError: a module of `imports` or an entry point cannot be imported.
    """
    for home in homes:
        package = importlib.import_module(f"nmt_cli.{home}")
        inner = {found.name for found in pkgutil.iter_modules(package.__path__)}
        for name in sorted(inner & {"settings"} or inner):
            importlib.import_module(f"nmt_cli.{home}.{name}")
    groups = GROUPS if homes == HOMES else GROUPS[:1]
    plugins = [entry for group in groups for entry in importlib.metadata.entry_points(group=group)]
    modules = [(f"entry point {entry.name} = {entry.value}", entry.module) for entry in plugins]
    for origin, module in [*modules, *((f"--import {name}", name) for name in imports)]:
        try:
            importlib.import_module(module)
        except UsageError:
            raise
        except Exception as error:
            advice = "Give the name of a module, without .py, that is installed or in a directory of PYTHONPATH."
            own = (
                isinstance(error, ModuleNotFoundError)
                and (error.name or "").split(".")[0] == module.split(".")[0]
            )
            if (
                not own and module.replace(".", "_").isidentifier()
            ):  # the module is there, and its code fails
                place = traceback.extract_tb(error.__traceback__)[-1]
                where = (
                    ""
                    if isinstance(error, SyntaxError)
                    else f" in {place.filename}, line {place.lineno}"
                )
                advice = f"{type(error).__name__}{where}"
                if isinstance(error, ImportError) and (error.name or "").startswith("nmt_cli."):
                    advice += ". Modules moved in version 2: import the names from nmt_cli.plugins"
            raise UsageError(f"{origin}: cannot import it: {error}. {advice}") from error


def method(name: str) -> Callable[..., Any]:
    """Return the function of an entry point of the group `nmt.methods`.

    Raises:
        UsageError: no annex or plug-in has it.
    """
    functions = entries("nmt.methods", name=name)
    if not functions:
        raise UsageError(
            f"this needs the function {name!r}, which is not installed: no annex or plug-in has it"
        )
    function: Callable[..., Any] = functions[0]
    return function


def entries(group: str, **selected: Any) -> list[Any]:
    """Return what the entry points of a group, by default all of them, stand for."""
    return [entry.load() for entry in importlib.metadata.entry_points(group=group, **selected)]


def components(kind: str) -> list[Component]:
    return [_components[kind][name] for name in names(kind)]


def extras_of(cls: type[Any]) -> list[Component]:
    """Return the registered extras whose configurations the dataclass `cls` holds in a field made
    by `extras`.
    """
    kinds = [kind for field in dataclasses.fields(cls) for kind in field.metadata.get("extras", ())]
    return [component for kind in kinds for component in components(kind)]


def names(kind: str) -> list[str]:
    return sorted(_components[kind])


def find(kind: str, name: str) -> Component:
    """Return the component registered as `kind` and `name`; the UsageError if there is none has the
    nearest names.
    """
    if name not in _components[kind]:
        known = nearest(name, _components[kind], f"Known: {', '.join(names(kind))}.")
        own = (
            ""
            if known.startswith("Did")
            else " A component of your own is loaded with --import MODULE."
        )
        raise UsageError(f"there is no {kind} called {shown(name)}. {known}{own}")
    return _components[kind][name]


def component_of(config: Any) -> Component:
    """Return the component that the dataclass instance `config` configures."""
    for components_of_kind in _components.values():
        for component in components_of_kind.values():
            if component.config is type(config):
                return component
    raise UsageError(f"no registered component has a configuration of type {type(config).__name__}")


def build(config: Any, **runtime: Any) -> Any:
    """Build the component that `config` configures; `runtime` are values that are known at run time
    only.

    Errors of the builder are the component's own, and keep their traceback.
    """
    return component_of(config).build(config, **runtime)


def build_as(base: type[Any], config: Any, **runtime: Any) -> Any:
    """Build the component that `config` configures, which must be a subclass of `base`.

    Raises:
        UsageError: it is not. Version 1 did not ask for it.
    """
    component, built = component_of(config), build(config, **runtime)
    if not isinstance(built, base):
        raise UsageError(
            f"--{component.kind} {component.name}: {type(built).__qualname__} must be a subclass "
            "of "
            f"nmt_cli.plugins.{base.__name__} since version 2"
        )
    return built
