"""Commands and their flags, made from dataclasses: a field's type, default and help line are written nowhere else."""

from __future__ import annotations

import dataclasses
import inspect
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from nmt_cli.config import construct, fields, flag
from nmt_cli.errors import UsageError

IMPORTS_HELP = "Python module that registers components of your own."
_METAVARS = {int: "N", float: "X", Path: "FILE", str: "NAME"}


class Panel(NamedTuple):
    """A group of flags in a command's help: the fields of one dataclass."""

    title: str
    config: type[Any]


class MoreFlags(NamedTuple):
    """The flags of components: their panels, and the names that each kind of component may have."""

    panels: Sequence[Panel]
    choices: Mapping[str, Sequence[str]] = {}


@dataclasses.dataclass(frozen=True)
class Command:
    """A subcommand of `nmt`.

    Args:
        options: a dataclass; its fields are the command's own arguments and flags, its docstring is the help.
        run: called with an instance of `options`, and with the values of the other flags that were given, by field
            name, where the command has more flags.
        more_flags: takes the modules of `--import`; gives the flags of components.
        examples: command lines shown at the end of the help.
    """

    options: type[Any]
    run: Callable[..., None]
    more_flags: Callable[[Sequence[str]], MoreFlags] | None = None
    examples: Sequence[str] = ()


def function_of(command: Command, imports: Sequence[str]) -> Callable[..., None]:
    """A function whose signature typer reads as the command's arguments and flags, and that runs the command.

    Raises:
        UsageError: a component's field has the name of a flag of the command itself.
    """
    own = list(_own_parameters(command.options))
    more = command.more_flags(imports) if command.more_flags else MoreFlags(())
    added = [*_choice_parameters(more.choices), *_field_parameters(more.panels)]
    names = {parameter.name for parameter in own}
    for parameter in added:
        if parameter.name in names:
            raise UsageError(
                f"{flag(parameter.name)} is a flag of the command itself: a component must rename its field "
                f"{parameter.name!r}"
            )

    def run(**values: Any) -> None:
        given = {name: _plain(value) for name, value in values.items() if value not in (None, [], ())}
        of_command = {name: given.pop(name) for name in names & given.keys()}
        options = construct(command.options, of_command, dict.fromkeys(of_command, "the command line"))
        if command.more_flags:
            command.run(options, given)
        else:
            command.run(options)

    run.__doc__ = inspect.getdoc(command.options)
    run.__signature__ = inspect.Signature([*own, *added])  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in [*own, *added]}
    return run


def _own_parameters(options: type[Any]) -> Iterator[inspect.Parameter]:
    for field, hint in fields(options):
        if "help" not in field.metadata:
            continue
        kind, metadata = _kind(hint), field.metadata
        required = field.default is dataclasses.MISSING
        several = typing.get_origin(hint) is tuple
        annotation = list[kind] if several else kind  # type: ignore[valid-type]
        if metadata.get("positional"):
            info: Any = typer.Argument(metavar=metadata["metavar"], help=metadata["help"], show_default=False)
        else:
            names = metadata["names"] or (flag(field.name),)
            info = typer.Option(*names, help=_help(field), metavar=_metavar(field, kind), show_default=False)
        default = inspect.Parameter.empty if required else None
        wanted = annotation if required else annotation | None
        yield _parameter(field.name, Annotated[wanted, info], default)


def _choice_parameters(choices: Mapping[str, Sequence[str]]) -> Iterable[inspect.Parameter]:
    for kind, names in choices.items():
        option = typer.Option(
            flag(kind), help=f"which {kind}: {', '.join(names)}", metavar="NAME", rich_help_panel="components"
        )
        yield _parameter(kind, Annotated[str | None, option])


def _field_parameters(panels: Sequence[Panel]) -> Iterable[inspect.Parameter]:
    """One for each name: two components of one kind may share a field, whose flag serves whichever is selected."""
    owners: dict[str, list[tuple[str, dataclasses.Field[Any]]]] = {}
    kinds: dict[str, type[Any]] = {}
    for panel in panels:
        for field, hint in fields(panel.config):
            if "help" in field.metadata:
                owners.setdefault(field.name, []).append((panel.title, field))
                kinds[field.name] = _kind(hint)
    for name, kind in kinds.items():
        titles, shared = zip(*owners[name], strict=True)
        names = f"{flag(name)}/--no-{name.replace('_', '-')}" if kind is bool else flag(name)
        option = typer.Option(
            names,
            help=_help(shared[-1], _defaults([field.default for field in shared], titles)),
            rich_help_panel=" and ".join(titles),
            metavar=_metavar(shared[-1], kind),
            show_default=False,
        )
        yield _parameter(name, Annotated[kind | None, option])


def _kind(hint: Any) -> type[Any]:
    """The type that typer reads: `int` for `int | None`, `Path` for `tuple[Path, ...]`, `str` for `str | int`."""
    if typing.get_origin(hint) is tuple:
        return typing.cast(type[Any], typing.get_args(hint)[0])
    accepted = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    kinds = [kind for kind in accepted if kind is not type(None)]
    return kinds[0] if len(kinds) == 1 else str


def _metavar(field: dataclasses.Field[Any], kind: type[Any]) -> str | None:
    if kind is bool:
        return None
    return field.metadata["metavar"] or "|".join(field.metadata["choices"]) or _METAVARS.get(kind, "TEXT")


def _help(field: dataclasses.Field[Any], defaults: str | None = None) -> str:
    shown = _defaults([field.default], [""]) if defaults is None else defaults
    return " ".join(filter(None, [str(field.metadata["help"]), shown])).replace("[", "\\[")


def _defaults(values: Sequence[Any], titles: Sequence[str]) -> str:
    """`[default: 4]`, or each component's own: `[default: task a 16000, task b 10000]`."""
    shown = [f"{value:g}" if isinstance(value, float) else str(value) for value in values]
    if all(value in (None, "", (), False) or value is dataclasses.MISSING for value in values):
        return ""
    if len(set(shown)) == 1:
        return f"[default: {shown[0]}]"
    return f"[default: {', '.join(f'{title} {value}' for title, value in zip(titles, shown, strict=True))}]"


def _plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _parameter(name: str, annotation: Any, default: Any = None) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
