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
from nmt_cli.errors import UsageError

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

    Raises:
        UsageError: a field has the name of a flag of `command` itself.
    """
    static = inspect.signature(command, eval_str=True).parameters
    added = [*_choice_parameters(choices or {}), *_field_parameters(panels)]
    names = [parameter.name for parameter in added]
    for name in names:
        if name in static:
            raise UsageError(
                f"{flag(name)} is a flag of the command itself: a component must rename its field {name!r}"
            )

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


def _field_parameters(panels: Sequence[Panel]) -> Iterable[inspect.Parameter]:
    """One for each name: two components of one kind may share a field, whose flag serves whichever is selected."""
    owners: dict[str, list[tuple[str, dataclasses.Field[Any]]]] = {}
    kinds: dict[str, type[Any]] = {}
    for panel in panels:
        for field, hint in fields(panel.config):
            owners.setdefault(field.name, []).append((panel.title, field))
            kinds[field.name] = _kind(hint)
    for name, kind in kinds.items():
        titles, shared = zip(*owners[name], strict=True)
        yield _parameter(name, Annotated[kind | None, _option(kind, titles, shared)])


def _kind(hint: Any) -> type[Any]:
    accepted = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    kinds = [kind for kind in accepted if kind is not type(None)]
    return kinds[0] if len(kinds) == 1 else str


def _option(kind: type[Any], titles: Sequence[str], shared: Sequence[dataclasses.Field[Any]]) -> Any:
    """The flag of a field that the panels `titles` share; its help is the last one's."""
    name = shared[-1].name
    names = f"{flag(name)}/--no-{name.replace('_', '-')}" if kind is bool else flag(name)
    words = [str(shared[-1].metadata.get("help", ""))]
    if shared[-1].metadata.get("choices"):
        words.append(f"({' | '.join(shared[-1].metadata['choices'])})")
    words.append(_defaults([field.default for field in shared], titles))
    metavar = None if kind is bool else {int: "INTEGER", float: "NUMBER"}.get(kind, "TEXT")
    return typer.Option(
        names,
        help=" ".join(filter(None, words)).replace("[", "\\["),
        rich_help_panel=" and ".join(titles),
        metavar=metavar,
        show_default=False,
    )


def _defaults(values: Sequence[Any], titles: Sequence[str]) -> str:
    """`[default: 4]`, or each component's own: `[default: task parsing 16000, task translation 10000]`."""
    shown = [f"{value:g}" if isinstance(value, float) else str(value) for value in values]
    if all(value is None or value == "" for value in values):
        return ""
    if len(set(shown)) == 1:
        return f"[default: {shown[0]}]"
    return f"[default: {', '.join(f'{title} {value}' for title, value in zip(titles, shown, strict=True))}]"


def _parameter(name: str, annotation: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
