"""Commands and their flags, made from dataclasses: a field's type, default and help line are
written nowhere else.
"""

from __future__ import annotations

import dataclasses
import inspect
import itertools
import types
import typing
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperCommand

from nmt_cli import registry
from nmt_cli.config import COMMAND_LINE, Section, construct, fields, file_values, flag
from nmt_cli.errors import UsageError, main_rank_reports
from nmt_cli.hints import refuse, unknown_flags
from nmt_cli.registry import option

_METAVARS = {int: "N", float: "X", Path: "FILE"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class FromFile:
    """Options that a file may have, too."""

    config: Path | None = option(
        None, "Read flags from a TOML, YAML or JSON file. The command line overrides it."
    )

    def of_components(self) -> dict[str, Any]:
        """Return the settings of the file that are not the command's own options."""
        own = _Group(type(self)).names_in_file()
        return {name: value for name, value in file_values(self.config).items() if name not in own}


@dataclasses.dataclass(frozen=True)
class Command:
    """A subcommand of `nmt`.

    `run` is called with an instance of `options` and, if the command has more flags, with the
    values of those that were given, by field name.
    """

    options: type[
        Any
        # A dataclass: its fields are the command's own arguments and flags, its docstring is the
        # help.
    ]
    run: Callable[..., None]
    # By the words of the command line.
    more_flags: Callable[[Sequence[str]], Mapping[str, Section]] | None = None
    examples: Sequence[str] = ()  # at the end of the help
    needs_arguments: bool = True  # without any, the command shows its help


class CommandWithSections(TyperCommand):
    """A typer command whose help has a section for each panel, and that knows the flags of other
    toolkits.
    """

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        pieces = [
            str(param.metavar) for param in self.params if param.param_type_name == "argument"
        ]
        return ["[OPTIONS]", *pieces]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            if param.param_type_name == "argument":
                sections.setdefault("Arguments", []).append(
                    (str(param.metavar), str(getattr(param, "help", "")))
                )
            elif record := param.get_help_record(ctx):
                first, *values = record[1].split("\n")
                rows = sections.setdefault(getattr(param, "rich_help_panel", None) or "Options", [])
                rows.append((record[0], first))
                rows.extend(
                    (f"  {name}", about)
                    for name, _, about in (value.partition(": ") for value in values)
                )
        for title, rows in sections.items():
            with formatter.section(title[0].upper() + title[1:]):
                formatter.write_dl(rows, col_max=34)

    @main_rank_reports()
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse `args`, unless some of them are unknown flags. Completion is resilient: it refuses
        nothing.
        """
        if not ctx.resilient_parsing:
            name = str(self.name)
            options = [param for param in self.get_params(ctx) if param.param_type_name == "option"]
            known = {
                flag: option
                for option in options
                for flag in [*option.opts, *option.secondary_opts]
            }
            refuse(f"nmt {name} has no flag", unknown_flags(name, args, known), name, known)
        return super().parse_args(ctx, args)


def import_option() -> Any:
    """Return the option --import of a command."""
    return option(
        (),
        "Import a Python module that registers components.",
        metavar="MODULE",
        names=("--import",),
    )


def device_option() -> Any:
    """Return the option --device of a command."""
    return option("auto", "Device to use: auto, cpu, cuda or cuda:N.")


def epilog(command: Command) -> str:
    return "\n  ".join(["\b\nExamples:", *command.examples])


def values_of(words: Sequence[str], name: str) -> list[str]:
    """Return the values of the flag `name` among the words of a command line, which select other
    flags.
    """
    values = [following for word, following in itertools.pairwise(words) if word == name]
    return values + [word.partition("=")[2] for word in words if word.startswith(f"{name}=")]


def components_in(words: Sequence[str], kinds: Iterable[str]) -> dict[str, str]:
    """Return the components that flags among the words of a command line select, by kind."""
    return {kind: values[-1] for kind in kinds if (values := values_of(words, flag(kind)))}


def function_of(command: Command, words: Sequence[str]) -> Callable[..., None]:
    """Return a function whose signature typer reads as the command's arguments and flags, and that
    runs the command.
    """
    group = _Group(command.options)
    with main_rank_reports():
        named = values_of(words, "--config") if issubclass(command.options, FromFile) else []
        file = Path(named[-1]) if named else None
        settings = file_values(file)
        selecting = [*_words_of(settings), *words]
        if group.has_extras():
            registry.discover(values_of(selecting, "--import"))
        more = command.more_flags(selecting) if command.more_flags else {}
        own = [_own_parameter(title, field, hint, file) for title, field, hint in group.flags()]
        names = {parameter.name for parameter in own}
        parameters = [*own, *_more_parameters(more, names)]
        fields_in_file = group.names_in_file()
        known = {
            parameter.name.replace("__", ".") for parameter in parameters
        } - names | fields_in_file.keys()
        refuse(
            f"{file}: there is no setting",
            sorted(settings.keys() - known),
            " ".join(words[:1]),
            known,
        )
    from_file = {
        fields_in_file[name]: value
        for name, value in settings.items()
        if name in fields_in_file and value not in (None, [])
    }

    def run(**values: Any) -> None:
        given = {
            name.replace("__", "."): tuple(value) if isinstance(value, list) else value
            for name, value in values.items()
            if value not in (None, [], ())
        }
        of_command = {name: given.pop(name) for name in names & given.keys()}
        origins = dict.fromkeys(from_file, f"{file}: ") | dict.fromkeys(of_command, COMMAND_LINE)
        with main_rank_reports():
            options = group.instance(from_file | of_command, origins)
        command.run(options, *([given] if command.more_flags else []))

    run.__doc__ = inspect.getdoc(command.options)
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def _words_of(settings: Mapping[str, Any]) -> list[str]:
    """Return the settings of a file as the words of a command line."""
    words = []
    for name, value in settings.items():
        for item in value if isinstance(value, list) else [value]:
            words += [flag(name), str(item)]
    return words


class _Group(NamedTuple):
    """The flags of a dataclass: a command's own, or those of an inner dataclass."""

    config: type[Any]
    title: str = ""  # of an inner one
    field: str = ""  # of the outer dataclass
    extra: str = ""  # the name, if the field holds the settings of extras
    without: frozenset[str] = frozenset()  # as in `registry.group`

    def fields(self) -> list[tuple[dataclasses.Field[Any], Any]]:
        """Return the fields that are flags, with their types."""
        return [
            (field, hint) for field, hint in fields(self.config) if field.name not in self.without
        ]

    def inner(self) -> list[_Group]:
        """Return the groups that `registry.group` and `registry.extras` make."""
        groups = []
        for field in dataclasses.fields(self.config):
            if "title" in field.metadata and field.name not in self.without:
                config = typing.cast(type[Any], field.default_factory)
                without = self.without | field.metadata["without"]
                groups.append(_Group(config, field.metadata["title"], field.name, without=without))
        for extra in registry.extras_of(self.config):
            if extra.name not in self.without:
                groups.append(
                    _Group(
                        extra.config,
                        extra.name.replace("_", " "),
                        "extras",
                        extra.name,
                        self.without,
                    )
                )
        return groups

    def has_extras(self) -> bool:
        is_here = any("extras" in field.metadata for field in dataclasses.fields(self.config))
        return is_here or any(group.has_extras() for group in self.inner())

    def flags(self) -> list[tuple[str, dataclasses.Field[Any], Any]]:
        """Return all flags with the titles of their groups, arguments first, inner groups first
        within another one.
        """
        own = [(self.title, field, hint) for field, hint in self.fields()]
        own.sort(key=lambda flag: not flag[1].metadata.get("positional"))
        inner = [flag for group in self.inner() for flag in group.flags()]
        return [*inner, *own] if self.title else [*own, *inner]

    def names_in_file(self) -> dict[str, str]:
        """Return the fields that a file may set, by their names there."""
        return {_key(field): field.name for _, field, _ in self.flags() if field.name != "config"}

    def instance(self, given: Mapping[str, Any], origins: Mapping[str, str]) -> Any:
        """Return the dataclass with the values `given`, some of which are of inner groups."""
        values = {
            field.name: given[field.name] for field, _ in self.fields() if field.name in given
        }
        for field, _ in self.fields():
            if (
                field.default is dataclasses.MISSING and field.name not in values
            ):  # typer has let it pass for the file
                raise UsageError(
                    f"{_key(field)} is missing: give it on the command line or in the file of "
                    "--config"
                )
            needed = field.metadata.get("needs")
            if needed and field.name in values and not values.get(needed):
                raise UsageError(f"{flag(field)} needs {flag(needed)}")
        for group in self.inner():
            if group.extra:
                values.setdefault(group.field, {})[group.extra] = group.instance(given, origins)
            else:
                values[group.field] = group.instance(given, origins)
        return construct(
            self.config, values, {name: origins.get(name, COMMAND_LINE) for name in values}
        )


def _key(field: dataclasses.Field[Any]) -> str:
    """Return the name of a flag or an argument in a file: `batch_tokens`, or `checkpoint` for
    CHECKPOINT....
    """
    name = (
        field.metadata["metavar"].strip(".").lower()
        if field.metadata.get("positional")
        else flag(field)
    )
    return str(name).strip("-").replace("-", "_")


def _own_parameter(
    title: str, field: dataclasses.Field[Any], hint: Any, file: Path | None
) -> inspect.Parameter:
    """Return an argument or a flag of a command; none is required where the `file` may have it."""
    required = field.default is dataclasses.MISSING
    if field.metadata.get("positional"):
        metavar = field.metadata["metavar"] if required else f"[{field.metadata['metavar']}]"
        info: Any = typer.Argument(metavar=metavar, help=field.metadata["help"], show_default=False)
    else:
        # A negation is of use only where leaving the flag out means something else.
        names = list(field.metadata["names"] or [flag(field)])
        if hint is not bool or file is not None:
            names[0] = _switch(names[0], hint)
        info = _option(field, hint, names, field.default, rich_help_panel=title or None)
    return _parameter(field.name, hint, info, required and file is None)


def _more_parameters(sections: Mapping[str, Section], own: set[str]) -> Iterable[inspect.Parameter]:
    """Return the flags of the sections, the flags that select components, and the flags of
    components.

    Each field has the flags `--FIELD`, unless the command has one of this name, and
    `--SECTION.FIELD`. The help shows one of them: the second where several sections have the field.
    The flags of components that are not selected are hidden and accepted, because a file may select
    their component. `config` refuses them otherwise.
    """
    kinds = {kind: section for kind, section in sections.items() if section.component}
    owners = Counter(
        field.name for section in sections.values() for field, _ in fields(section.config)
    )
    parameters: dict[str, inspect.Parameter] = {}

    def add(section: str, config: type[Any], title: str) -> None:
        values = sections[section].values
        for field, hint in fields(config):
            names = [] if field.name in own.union(kinds) else [field.name]
            names.append(f"{section}.{field.name}")
            for name in names:
                hidden = not title or name != names[0 if owners[field.name] == 1 else -1]
                default = values.get(field.name, field.default)
                info = _option(
                    field,
                    hint,
                    [_switch(flag(name), hint)],
                    default,
                    rich_help_panel=title,
                    hidden=hidden,
                )
                parameters.setdefault(name, _parameter(name.replace(".", "__"), hint, info))

    for name, section in sections.items():
        if name not in kinds:
            add(name, section.config, title=name)
    parameters |= {
        kind: _parameter(kind, str, _choice(kind, section.component))
        for kind, section in kinds.items()
    }
    for kind, section in kinds.items():
        add(kind, section.config, title=f"{kind} {section.component}")
    for kind in kinds:
        for other in registry.components(kind):
            add(kind, other.config, title="")
    return parameters.values()


def _switch(name: str, hint: Any) -> str:
    """Return the flag of a component's field; a boolean one has a negation, as a file or preset may
    have set it.
    """
    return f"{name}/--no-{name.removeprefix('--')}" if _kind(hint) is bool else name


def _choice(kind: str, used: str) -> Any:
    """Return the flag that selects a component; each line of its help but the first is about
    another component.
    """
    others = [
        f"{other.name}: {other.about}" for other in registry.components(kind) if other.name != used
    ]
    return typer.Option(
        flag(kind),
        help="\n".join([f"Selected: {used}.{' Others:' if others else ''}", *others]),
        metavar="NAME",
        rich_help_panel="components (--help with another NAME shows its flags)",
        autocompletion=lambda incomplete: [
            name for name in registry.names(kind) if name.startswith(incomplete)
        ],
    )


def _option(
    field: dataclasses.Field[Any], hint: Any, names: Sequence[str], default: Any, **more: Any
) -> Any:
    kind, choices = _kind(hint), field.metadata["choices"]

    def number(text: str) -> Any:
        try:
            return kind(text)
        except ValueError:
            wanted = "an integer" if kind is int else "a number"
            raise UsageError(f"{names[0]} must be {wanted}, not {text!r}") from None

    metavar = next(
        (_METAVARS[part] for part in typing.get_args(hint) or [hint] if part in _METAVARS), "NAME"
    )
    return typer.Option(
        *names,
        help=f"{field.metadata['help']} {_default(default)}".rstrip(),
        metavar=None if kind is bool else field.metadata["metavar"] or "|".join(choices) or metavar,
        show_default=False,
        parser=number if kind in (int, float) else None,
        autocompletion=lambda incomplete: [
            value
            for value in [*choices, *field.metadata["suggestions"]()]
            if value.startswith(incomplete)
        ],
        **more,
    )


def _kind(hint: Any) -> type[Any]:
    """Return the type of the flag: `int` for `int | None`, `Path` for `tuple[Path, ...]`, `str` for
    `str | int`.
    """
    if typing.get_origin(hint) is tuple:
        return typing.cast(type[Any], typing.get_args(hint)[0])
    accepted = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    kinds = [kind for kind in accepted if kind is not type(None)]
    return kinds[0] if len(kinds) == 1 else str


def _default(value: Any) -> str:
    if value is None or value is False or value in ("", (), dataclasses.MISSING):
        return ""
    return f"[default: {value:g}]" if isinstance(value, float) else f"[default: {value}]"


def _parameter(name: str, hint: Any, info: Any, required: bool = False) -> inspect.Parameter:
    several = typing.get_origin(hint) is tuple  # a flag that may be repeated
    kind: Any = list[_kind(hint)] if several else _kind(hint)  # type: ignore[misc]
    wanted, default = (kind, inspect.Parameter.empty) if required else (kind | None, None)
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[wanted, info]
    )
