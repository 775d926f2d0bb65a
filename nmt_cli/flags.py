"""Flags made from the dataclasses of components: a field's type, default and help line are written nowhere else."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import types
import typing
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any

import typer

from nmt_cli.config import fields, flag

Command = Callable[..., None]


@dataclasses.dataclass(frozen=True)
class Panel:
    """A group of flags in a command's help: the fields of one dataclass, or a choice of a component."""

    title: str
    config: type[Any]


def with_fields(command: Command, panels: Sequence[Panel], choices: dict[str, Sequence[str]] | None = None) -> Command:
    """`command` with a flag more for each field of the panels' dataclasses and for each choice of a component.

    Args:
        command: takes `flags`, a dict that receives the fields whose flags were given, by name.
        choices: kind of component -> the names that it may have.
    """
    static = inspect.signature(command, eval_str=True).parameters
    added = [*_choice_parameters(choices or {}), *_unique(p for panel in panels for p in _parameters(panel))]
    names = [parameter.name for parameter in added]

    @functools.wraps(command)
    def extended(**values: Any) -> None:
        flags = {name: values.pop(name) for name in names}
        command(**values, flags={name: value for name, value in flags.items() if value is not None})

    parameters = [p for name, p in static.items() if name != "flags"] + added
    extended.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    extended.__annotations__ = {p.name: p.annotation for p in parameters}
    del extended.__wrapped__
    return extended


def _choice_parameters(choices: dict[str, Sequence[str]]) -> Iterable[inspect.Parameter]:
    for kind, names in choices.items():
        option = typer.Option(
            flag(kind), help=f"which {kind}: {', '.join(names)}", metavar="NAME", rich_help_panel="components"
        )
        yield _parameter(kind, Annotated[str | None, option])


def _parameters(panel: Panel) -> Iterable[inspect.Parameter]:
    for field, hint in fields(panel.config):
        accepted = [
            kind
            for kind in (typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,))
            if kind is not type(None)
        ]
        kind = accepted[0] if len(accepted) == 1 else str
        yield _parameter(field.name, Annotated[kind | None, _option(field, kind, panel.title)])


def _option(field: dataclasses.Field[Any], kind: type[Any], title: str) -> Any:
    names = f"{flag(field.name)}/--no-{field.name.replace('_', '-')}" if kind is bool else flag(field.name)
    words = [str(field.metadata.get("help", ""))]
    if field.metadata.get("choices"):
        words.append(f"({' | '.join(field.metadata['choices'])})")
    if field.default is not None and field.default != "":
        words.append(
            f"[default: {field.default:g}]" if isinstance(field.default, float) else f"[default: {field.default}]"
        )
    metavar = None if kind is bool else {int: "INTEGER", float: "NUMBER"}.get(kind, "TEXT")
    return typer.Option(
        names, help=" ".join(words).replace("[", "\\["), rich_help_panel=title, metavar=metavar, show_default=False
    )


def _parameter(name: str, annotation: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def _unique(parameters: Iterable[inspect.Parameter]) -> list[inspect.Parameter]:
    """Two components of one kind may share the name of a field; the flag then serves whichever is selected."""
    return list({parameter.name: parameter for parameter in parameters}.values())
