"""Commands and their flags, made from dataclasses: a field's type, default and help line are written nowhere else."""

from __future__ import annotations

import dataclasses
import inspect
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperCommand

from nmt_cli.config import COMMAND_LINE, construct, fields, flag
from nmt_cli.errors import UsageError
from nmt_cli.foreign_flags import FOREIGN_FLAGS

IMPORTS_HELP = "Import a Python module that registers components."
_METAVARS = {int: "N", float: "X", Path: "FILE"}


class Panel(NamedTuple):
    """The flags of one dataclass, under a title in a command's help.

    Args:
        section: where given, the flag of each field can also be written as `--SECTION.FIELD`.
    """

    title: str
    config: type[Any]
    section: str = ""


class MoreFlags(NamedTuple):
    """The flags of components: their panels, and the names that each kind of component may have."""

    panels: Sequence[Panel]
    choices: Mapping[str, Sequence[str]] = {}


@dataclasses.dataclass(frozen=True)
class Command:
    """A subcommand of `nmt`.

    Args:
        options: a dataclass; its fields are the command's own arguments and flags, its docstring is the help.
        run: called with an instance of `options` and, if the command has more flags, with the values of those that were
            given, by field name.
        more_flags: takes the modules of `--import`; returns the flags of components.
        examples: command lines shown at the end of the help.
    """

    options: type[Any]
    run: Callable[..., None]
    more_flags: Callable[[Sequence[str]], MoreFlags] | None = None
    examples: Sequence[str] = ()


class CommandWithSections(TyperCommand):
    """A typer command whose help has a section for each panel, and that knows the flags of other toolkits."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return `[OPTIONS] RUN...`."""
        pieces = [str(param.metavar) for param in self.params if param.param_type_name == "argument"]
        return ["[OPTIONS]", *pieces]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments and flags, by panel."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            if param.param_type_name == "argument":
                sections.setdefault("Arguments", []).append((str(param.metavar), str(getattr(param, "help", ""))))
            elif record := param.get_help_record(ctx):
                sections.setdefault(getattr(param, "rich_help_panel", None) or "Options", []).append(record)
        for title, rows in sections.items():
            with formatter.section(title[0].upper() + title[1:]):
                formatter.write_dl(rows, col_max=34)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse `args`; the message for another toolkit's flag names ours."""
        known = {name for param in self.params for name in [*param.opts, *param.secondary_opts]}
        table = FOREIGN_FLAGS.get(str(self.name), {})
        for word in args:
            name = word.partition("=")[0]
            plain = name.lstrip("-").replace("_", "-")
            if name.startswith("-") and name not in known and plain in table and not ctx.resilient_parsing:
                raise UsageError(f"nmt {self.name} has no {name}; use {table[plain]}")
        return super().parse_args(ctx, args)


def epilog(command: Command) -> str | None:
    """Return the end of the command's help."""
    return "\n  ".join(["\b\nExamples:", *command.examples]) if command.examples else None


def function_of(command: Command, imports: Sequence[str]) -> Callable[..., None]:
    """Return a function whose signature typer reads as the command's arguments and flags, and that runs the command."""
    own = list(_own_parameters(command.options))
    names = {parameter.name for parameter in own}
    more = command.more_flags(imports) if command.more_flags else MoreFlags(())
    parameters = [*own, *_more_parameters(more, names)]

    def run(**values: Any) -> None:
        given = {
            name.replace("__", "."): tuple(value) if isinstance(value, list) else value
            for name, value in values.items()
            if value not in (None, [], ())
        }
        of_command = {name: given.pop(name) for name in names & given.keys()}
        options = construct(command.options, of_command, dict.fromkeys(of_command, COMMAND_LINE))
        command.run(options, *([given] if command.more_flags else []))

    run.__doc__ = inspect.getdoc(command.options)
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def _own_parameters(options: type[Any]) -> Iterator[inspect.Parameter]:
    for field, hint in fields(options):
        if "help" not in field.metadata:
            continue
        required = field.default is dataclasses.MISSING
        several = typing.get_origin(hint) is tuple
        kind = list[_kind(hint)] if several else _kind(hint)  # type: ignore[misc]
        if field.metadata.get("positional"):
            metavar = field.metadata["metavar"] if required else f"[{field.metadata['metavar']}]"
            info: Any = typer.Argument(metavar=metavar, help=field.metadata["help"], show_default=False)
        else:
            info = _option(field, hint, field.metadata["names"] or [flag(field)])
        yield _parameter(field.name, kind, info, required)


def _more_parameters(more: MoreFlags, taken: set[str]) -> Iterator[inspect.Parameter]:
    """Yield the flags of the panels; those that choose components stand before the components' own.

    Panels that share a field share its flag `--FIELD`. Every field of a section has a hidden `--SECTION.FIELD` too.
    """
    shared: dict[str, list[tuple[Panel, dataclasses.Field[Any], Any]]] = {}
    dotted: dict[str, inspect.Parameter] = {}
    for panel in more.panels:
        for field, hint in fields(panel.config):
            if "help" in field.metadata and field.name not in taken | more.choices.keys():
                shared.setdefault(field.name, []).append((panel, field, hint))
            if "help" in field.metadata and panel.section:
                info = _option(field, hint, [flag(f"{panel.section}.{field.name}")], hidden=True)
                name = f"{panel.section}__{field.name}"
                dotted[name] = _parameter(name, _kind(hint), info)

    def parameter(name: str) -> inspect.Parameter:
        panels, same, hints = zip(*shared[name], strict=True)
        titles = [panel.title for panel in panels]
        default = _default([field.default for field in same], titles)
        info = _option(same[0], hints[0], [flag(name)], default, rich_help_panel=" and ".join(titles))
        return _parameter(name, _kind(hints[0]), info)

    of_components = {name for name, uses in shared.items() if uses[0][0].section in more.choices}
    yield from (parameter(name) for name in shared if name not in of_components)
    for kind, names in more.choices.items():
        yield _parameter(kind, str, _choice(kind, names))
    yield from (parameter(name) for name in shared if name in of_components)
    yield from dotted.values()


def _choice(kind: str, names: Sequence[str]) -> Any:
    return typer.Option(
        flag(kind),
        help=f"which {kind}: {', '.join(names)}",
        metavar="NAME",
        rich_help_panel="components",
        autocompletion=lambda incomplete: [name for name in names if name.startswith(incomplete)],
    )


def _option(
    field: dataclasses.Field[Any], hint: Any, names: Sequence[str], default: str | None = None, **more: Any
) -> Any:
    kind, choices = _kind(hint), field.metadata["choices"]
    if kind is bool and (default is not None or more):  # one that a file or a preset may set
        names = [f"{name}/--no-{name.removeprefix('--')}" for name in names]
    return typer.Option(
        *names,
        help=" ".join(
            filter(None, [field.metadata["help"], _default([field.default], [""]) if default is None else default])
        ),
        metavar=None if kind is bool else field.metadata["metavar"] or "|".join(choices) or _METAVARS.get(kind, "NAME"),
        show_default=False,
        autocompletion=lambda incomplete: [choice for choice in choices if choice.startswith(incomplete)],
        **more,
    )


def _kind(hint: Any) -> type[Any]:
    """Return the type of the flag: `int` for `int | None`, `Path` for `tuple[Path, ...]`, `str` for `str | int`."""
    if typing.get_origin(hint) is tuple:
        return typing.cast(type[Any], typing.get_args(hint)[0])
    accepted = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    kinds = [kind for kind in accepted if kind is not type(None)]
    return kinds[0] if len(kinds) == 1 else str


def _default(values: Sequence[Any], titles: Sequence[str]) -> str:
    """Return `[default: 4]`, or each component's own: `[default: task parsing 16000, task translation 10000]`."""
    if all(value in (None, "", (), False, dataclasses.MISSING) for value in values):
        return ""
    shown = [f"{value:g}" if isinstance(value, float) else str(value) for value in values]
    if len(set(shown)) == 1:
        return f"[default: {shown[0]}]"
    return f"[default: {', '.join(f'{title} {value}' for title, value in zip(titles, shown, strict=True))}]"


def _parameter(name: str, kind: Any, info: Any, required: bool = False) -> inspect.Parameter:
    wanted, default = (kind, inspect.Parameter.empty) if required else (kind | None, None)
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[wanted, info])
