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
import functools
import importlib
import importlib.util
import pkgutil
import sys
import traceback
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from nmt_cli.errors import UsageError, nearest, shown

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints

KINDS = ("task", "model", "attention", "criterion", "optimizer", "schedule")
"""A run has one component of each kind, which the flag of that name selects: `--optimizer adam`."""

EXTRAS_OF_TRANSLATION = ("around", "encoding", "search", "length_penalty", "constraint")
EXTRAS_OF_RUN = ("observer", "sentences", "preparation")
EXTRAS_OF_PREPARED_DATA = ("filter",)
"""Kinds with any number of components at once: each with a flag that is not at its default."""

HOMES = ("tasks", "models", "layers", "criteria", "optim")
"""The directories of the package that have components."""
GROUPS = ("nmt.tasks", "nmt.components", "nmt.presets")
"""The groups of entry points. They name modules of annexes and plug-ins."""
REQUIRED = dataclasses.MISSING
"""The default of an option that must be given."""

Builder = TypeVar("Builder", bound=Callable[..., Any])
Config = TypeVar("Config", bound=type[Any])


@dataclass(frozen=True)
class Component:
    """A registered component."""

    kind: str
    name: str
    build: Callable[..., Any]  # called with an instance of `config`, and keywords
    config: type[Any]  # a dataclass
    module: str

    @property
    def about(self) -> str:
        """A line about the component: the beginning of its module's docstring."""
        module = sys.modules.get(self.module)
        text = docstring(self.module) if module is None else module.__doc__ or ""
        summary = text.partition("\n\n")[0]
        return " ".join(summary.split())


_components: dict[str, dict[str, Component]] = {
    kind: {} for kind in (*KINDS, *EXTRAS_OF_TRANSLATION, *EXTRAS_OF_RUN, *EXTRAS_OF_PREPARED_DATA)
}


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
        choices: the allowed values. They are read when they are needed, because components may be
            registered after the dataclass is made.
        metavar: the value's name in the help, by default N, X, FILE or NAME after the field's type.
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
    """Return a dataclass field for an instance of `options`: a group of flags with a title.

    Args:
        without: the names of fields, here and in inner groups, and of extras that have no flags in
            this command.
    """
    return field(default_factory=options, metadata={"title": title, "without": frozenset(without)})


def extras(*kinds: str) -> Any:
    """Return a dataclass field for the configurations of extras by name: a group of flags each."""
    return field(default_factory=dict, hash=False, metadata={"extras": kinds})


def argument(metavar: str, help: str, default: Any = REQUIRED) -> Any:
    """Return a dataclass field that becomes a positional argument of a command."""
    return field(default=default, metadata={"help": help, "metavar": metavar, "positional": True})


def register(kind: str, name: str, config: type[Any]) -> Callable[[Builder], Builder]:
    """Register the decorated class or function as a component, configured by a dataclass.

    A class replaces a component of this name that it is a subclass of.
    """
    if kind not in _components:
        raise UsageError(f"there is no kind of component called {kind!r}. {nearest(kind, KINDS)}")

    def add(build: Builder) -> Builder:
        present = _components[kind].get(name)
        if present is not None and not _may_replace(present.build, build):
            where = f"by {present.module} and by {build.__module__}"
            raise UsageError(f"{kind} {name!r} is registered twice: {where}. Rename one.")
        _components[kind][name] = Component(kind, name, build, config, build.__module__)
        return build

    return add


def _may_replace(present: Any, new: Any) -> bool:
    """Whether `new` is a subclass of `present`, or the same object of a module loaded again."""
    if isinstance(new, type) and isinstance(present, type) and issubclass(new, present):
        return True
    return (new.__module__, new.__qualname__) == (present.__module__, present.__qualname__)


def configures(kind: str, name: str, place: str) -> Callable[[Config], Config]:
    """Register the decorated dataclass for a component whose builder is at `place`, module:name."""

    def build(config: Any, **runtime: Any) -> Any:
        return pkgutil.resolve_name(place)(config, **runtime)

    def add(config: Config) -> Config:
        register(kind, name, config)(build)
        return config

    # Messages and `_may_replace` name the builder, not this function.
    build.__module__, _, build.__qualname__ = place.partition(":")
    return add


def docstring(module: str) -> str:
    """Return the docstring that a module's source begins with, without importing the module."""
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        return ""
    source = Path(spec.origin).read_text(encoding="utf-8").lstrip()
    if not source.startswith('"""'):
        return ""
    return source[3:].partition('"""')[0]


def discover(imports: Sequence[str] = (), homes: Sequence[str] = HOMES) -> None:
    """Import the modules that register components and presets.

    They are the package's own, the modules of entry points, and `imports`.

    Args:
        homes: the directories of the package to search: `settings.py`, or all modules where there
            is none. `nmt prepare` needs tasks only. Then only the entry points of tasks are loaded,
            too.

    Raises:
        UsageError: a module of `imports` or an entry point cannot be imported.
    """
    for home in homes:
        package = importlib.import_module(f"nmt_cli.{home}")
        modules = {module.name for module in pkgutil.iter_modules(package.__path__)}
        # A `settings.py` imports no torch, so the help of a command comes at once.
        if "settings" in modules:
            modules = {"settings"}
        for name in sorted(modules):
            importlib.import_module(f"nmt_cli.{home}.{name}")
    groups = GROUPS if homes == HOMES else GROUPS[:1]
    for group in groups:
        for entry in entry_points(group):
            _import(entry.module, f"entry point {entry.name} = {entry.value}")
    for name in imports:
        _import(name, f"--import {name}")


def _import(module: str, origin: str) -> None:
    try:
        importlib.import_module(module)
    except UsageError:
        raise
    except Exception as error:
        advice = _advice_on_import(module, error)
        raise UsageError(f"{origin}: cannot import it: {error}. {advice}") from error


def _advice_on_import(module: str, error: Exception) -> str:
    missing = ""  # the module that could not be imported
    if isinstance(error, ImportError):
        missing = error.name or ""
    same_package = missing.split(".")[0] == module.split(".")[0]
    is_missing = isinstance(error, ModuleNotFoundError) and same_package
    if is_missing or not module.replace(".", "_").isidentifier():
        return (
            "Give the name of a module, without .py, that is installed or in a directory of "
            "PYTHONPATH."
        )
    # The module is there, and its code fails.
    advice = type(error).__name__
    if not isinstance(error, SyntaxError):  # whose message has the place
        place = traceback.extract_tb(error.__traceback__)[-1]
        advice += f" in {place.filename}, line {place.lineno}"
    if missing.startswith("nmt_cli."):
        advice += ". Modules moved in version 2: import the names from nmt_cli.plugins"
    return advice


def method(name: str) -> Callable[..., Any]:
    """Return the function of an entry point of the group `nmt.methods`.

    Raises:
        UsageError: no annex or plug-in has it.
    """
    methods = entry_points("nmt.methods")
    if name not in methods.names:
        raise UsageError(
            f"this needs the function {name!r}, which is not installed: no annex or plug-in has it"
        )
    function: Callable[..., Any] = methods[name].load()
    return function


def entries(group: str) -> list[Any]:
    """Load the entry points of a group."""
    return [entry.load() for entry in entry_points(group)]


def entry_points(group: str) -> EntryPoints:
    """Return the entry points of a group, of all installed packages."""
    points: EntryPoints = _all_entry_points().select(group=group)
    return points


@functools.cache
def _all_entry_points() -> Any:
    """Read the metadata of all installed packages, which takes long where they are many."""
    import importlib.metadata  # not at the top: it takes a seventh of `nmt --version`

    return importlib.metadata.entry_points()


def components(kind: str) -> list[Component]:
    return [_components[kind][name] for name in names(kind)]


def extras_of(cls: type[Any]) -> list[Component]:
    """Return the extras whose configurations the dataclass `cls` holds in a field of `extras`."""
    kinds = [kind for field in dataclasses.fields(cls) for kind in field.metadata.get("extras", ())]
    return [component for kind in kinds for component in components(kind)]


def names(kind: str) -> list[str]:
    return sorted(_components[kind])


def find(kind: str, name: str) -> Component:
    """Return the component registered as `kind` and `name`.

    Raises:
        UsageError: there is none. The message has the nearest names.
    """
    if name not in _components[kind]:
        advice = nearest(name, _components[kind], f"Known: {', '.join(names(kind))}.")
        if not advice.startswith("Did you mean"):
            advice += " A component of your own is loaded with --import MODULE."
        raise UsageError(f"there is no {kind} called {shown(name)}. {advice}")
    return _components[kind][name]


def component_of(config: Any) -> Component:
    """Return the component that the dataclass instance `config` configures."""
    for components_of_kind in _components.values():
        for component in components_of_kind.values():
            if component.config is type(config):
                return component
    raise UsageError(f"no registered component has a configuration of type {type(config).__name__}")


def build(config: Any, **runtime: Any) -> Any:
    """Build the component that `config` configures.

    Errors of the builder are the component's own, and keep their traceback.

    Args:
        runtime: values that are known at run time only.
    """
    return component_of(config).build(config, **runtime)


def build_as(base: type[Any], config: Any, **runtime: Any) -> Any:
    """Build the component that `config` configures, which must be a subclass of `base`.

    Raises:
        UsageError: it is not. Version 1 did not ask for it.
    """
    component = component_of(config)
    built = component.build(config, **runtime)
    if not isinstance(built, base):
        raise UsageError(
            f"--{component.kind} {component.name}: {type(built).__qualname__} must be a subclass "
            f"of nmt_cli.plugins.{base.__name__} since version 2"
        )
    return built
