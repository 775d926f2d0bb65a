"""Commands and their flags, made from dataclasses.

A field's type, default and help line are written nowhere else.
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
        own_names = _Group(type(self)).names_in_file()
        settings = file_values(self.config)
        return {name: value for name, value in settings.items() if name not in own_names}


@dataclasses.dataclass(frozen=True)
class Command:
    """A subcommand of `nmt`.

    `run` is called with an instance of `options` and, if the command has more flags, with the
    values of those that were given, by field name.
    """

    options: type[Any]  # a dataclass of arguments and flags, whose docstring is the help
    run: Callable[..., None]
    # Sections of further flags, which depend on the words of the command line.
    more_flags: Callable[[Sequence[str]], Mapping[str, Section]] | None = None
    examples: Sequence[str] = ()  # at the end of the help
    needs_arguments: bool = True  # without any, the command shows its help


class CommandWithSections(TyperCommand):
    """A typer command with a section of the help for each panel, and hints for unknown flags."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        arguments = [param for param in self.params if param.param_type_name == "argument"]
        return ["[OPTIONS]", *[str(argument.metavar) for argument in arguments]]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            if param.param_type_name == "argument":
                rows = sections.setdefault("Arguments", [])
                rows.append((str(param.metavar), str(getattr(param, "help", ""))))
                continue
            record = param.get_help_record(ctx)
            if record is None:  # it is hidden
                continue
            names, text = record
            about, *other_components = text.split("\n")
            panel = getattr(param, "rich_help_panel", None) or "Options"
            rows = sections.setdefault(panel, [])
            rows.append((names, about))
            for line in other_components:  # of `_choice`
                name, _, about = line.partition(": ")
                rows.append((f"  {name}", about))
        for title, rows in sections.items():
            with formatter.section(title[0].upper() + title[1:]):
                # A longer flag has a line of its own.
                formatter.write_dl(rows, col_max=34)

    @main_rank_reports()
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse `args`, unless some of them are unknown flags."""
        if not ctx.resilient_parsing:  # completion refuses nothing
            known: dict[str, Any] = {}
            for param in self.get_params(ctx):
                if param.param_type_name == "option":
                    known |= dict.fromkeys([*param.opts, *param.secondary_opts], param)
            name = str(self.name)
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
    """Return the values of the flag `name` among the words of a command line."""
    values = []
    for word, following in itertools.zip_longest(words, words[1:]):
        if word == name and following is not None:
            values.append(following)
        elif word.startswith(f"{name}="):
            values.append(word.removeprefix(f"{name}="))
    return values


def value_of(words: Sequence[str], name: str) -> str | None:
    """Return the value of the flag `name`, the last one if there are several, or None."""
    values = values_of(words, name)
    return values[-1] if values else None


def components_in(words: Sequence[str], kinds: Iterable[str]) -> dict[str, str]:
    """Return the components that flags among the words of a command line select, by kind."""
    selected = {}
    for kind in kinds:
        name = value_of(words, flag(kind))
        if name is not None:
            selected[kind] = name
    return selected


def function_of(command: Command, words: Sequence[str]) -> Callable[..., None]:
    """Return the function of a command for typer, which reads its signature as flags."""
    group = _Group(command.options)
    with main_rank_reports():
        # The file is read before typer parses the words, because it may select components, which
        # have flags.
        name = value_of(words, "--config") if issubclass(command.options, FromFile) else None
        file = Path(name) if name is not None else None
        settings = file_values(file)
        selecting = [*_words_of(settings), *words]
        if group.has_extras():
            registry.discover(values_of(selecting, "--import"))
        sections = command.more_flags(selecting) if command.more_flags else {}
        own_parameters = [_own_parameter(flag, file) for flag in group.flags()]
        own_names = {parameter.name for parameter in own_parameters}
        more_parameters = _more_parameters(sections, own_names)
        fields_in_file = group.names_in_file()
        known = [*fields_in_file, *map(_setting, more_parameters)]
        unknown = sorted(settings.keys() - known)
        refuse(f"{file}: there is no setting", unknown, " ".join(words[:1]), known)
    from_file = {}
    for name, value in settings.items():
        if name in fields_in_file and value not in (None, []):
            from_file[fields_in_file[name]] = value

    def run(**values: Any) -> None:
        # typer passes None or an empty list for a flag that is not given.
        given = {name: value for name, value in values.items() if value not in (None, [], ())}
        own_values = {}
        section_values = {}
        for parameter, value in given.items():
            if isinstance(value, list):
                value = tuple(value)
            if parameter in own_names:
                own_values[parameter] = value
            else:
                section_values[_setting(parameter)] = value
        origins = dict.fromkeys(from_file, f"{file}: ") | dict.fromkeys(own_values, COMMAND_LINE)
        with main_rank_reports():
            options = group.instance(from_file | own_values, origins)
        if command.more_flags:
            command.run(options, section_values)
        else:
            command.run(options)

    parameters = [*own_parameters, *more_parameters.values()]
    run.__doc__ = inspect.getdoc(command.options)
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def _setting(parameter: str) -> str:
    """Return the name of a setting from the name of its parameter, which cannot have a dot."""
    return parameter.replace("__", ".")


def _words_of(settings: Mapping[str, Any]) -> list[str]:
    """Return the settings of a file as the words of a command line."""
    words = []
    for name, value in settings.items():
        items = value if isinstance(value, list) else [value]
        for item in items:
            words += [flag(name), str(item)]
    return words


class _Flag(NamedTuple):
    """A flag or an argument of a command."""

    group: str  # the title of its group, or ""
    field: dataclasses.Field[Any]
    hint: Any  # its type

    @property
    def is_argument(self) -> bool:
        return bool(self.field.metadata.get("positional"))

    @property
    def name_in_file(self) -> str:
        """Such as `batch_tokens`, or `checkpoint` for the argument CHECKPOINT...."""
        if self.is_argument:
            return str(self.field.metadata["metavar"]).strip(".").lower().replace("-", "_")
        return flag(self.field).strip("-").replace("-", "_")


class _Group(NamedTuple):
    """The flags of a dataclass: of a command, or of a dataclass in its fields."""

    config: type[Any]
    title: str = ""  # of an inner group
    field: str = ""  # of the outer dataclass
    extra: str = ""  # the name, if the field holds the settings of extras
    without: frozenset[str] = frozenset()  # as in `registry.group`

    def own_flags(self) -> list[_Flag]:
        """Return the flags of the dataclass itself, arguments first."""
        flags = [_Flag(self.title, field, hint) for field, hint in fields(self.config)]
        flags = [flag for flag in flags if flag.field.name not in self.without]
        return sorted(flags, key=lambda flag: not flag.is_argument)

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
                title = extra.name.replace("_", " ")
                groups.append(_Group(extra.config, title, "extras", extra.name, self.without))
        return groups

    def has_extras(self) -> bool:
        is_here = any("extras" in field.metadata for field in dataclasses.fields(self.config))
        return is_here or any(group.has_extras() for group in self.inner())

    def flags(self) -> list[_Flag]:
        """Return all flags. Inner groups come first, unless this is the command itself."""
        inner_flags = [flag for group in self.inner() for flag in group.flags()]
        if self.title:
            return [*inner_flags, *self.own_flags()]
        return [*self.own_flags(), *inner_flags]

    def names_in_file(self) -> dict[str, str]:
        """Return the fields that a file may set, by their names there."""
        flags = [flag for flag in self.flags() if flag.field.name != "config"]
        return {flag.name_in_file: flag.field.name for flag in flags}

    def instance(self, given: Mapping[str, Any], origins: Mapping[str, str]) -> Any:
        """Return the dataclass with the values `given`, some of which are of inner groups."""
        values: dict[str, Any] = {}
        for this in self.own_flags():
            field = this.field
            needed = field.metadata.get("needs")
            if field.name in given:
                values[field.name] = given[field.name]
                if needed and not given.get(needed):
                    raise UsageError(f"{flag(field)} needs {flag(needed)}")
            elif field.default is dataclasses.MISSING:
                # typer has let it pass, because the file may have it.
                raise UsageError(
                    f"{this.name_in_file} is missing: give it on the command line or in the file "
                    "of --config"
                )
        for group in self.inner():
            config = group.instance(given, origins)
            if group.extra:
                values.setdefault(group.field, {})[group.extra] = config
            else:
                values[group.field] = config
        return construct(
            self.config, values, {name: origins.get(name, COMMAND_LINE) for name in values}
        )


def _own_parameter(this: _Flag, file: Path | None) -> inspect.Parameter:
    """Return an argument or a flag of a command. None is required where a `file` may have it."""
    field = this.field
    required = field.default is dataclasses.MISSING
    info: Any
    if this.is_argument:
        metavar = field.metadata["metavar"]
        if not required:
            metavar = f"[{metavar}]"
        info = typer.Argument(metavar=metavar, help=field.metadata["help"], show_default=False)
    else:
        names = list(field.metadata["names"] or [flag(field)])
        # A negation is of use only where leaving the flag out means something else.
        if this.hint is not bool or file is not None:
            names[0] = _with_negation(names[0], this.hint)
        info = _option(field, this.hint, names, field.default, rich_help_panel=this.group or None)
    return _parameter(field.name, this.hint, info, required and file is None)


def _more_parameters(
    sections: Mapping[str, Section], own_names: set[str]
) -> dict[str, inspect.Parameter]:
    """Return the flags of the sections, and the flags that select components.

    Each field has the flags `--FIELD`, unless the command has one of this name, and
    `--SECTION.FIELD`. The help shows one of them: the second where several sections have the field.
    The flags of components that are not selected are hidden and accepted, because a file may select
    their component. `config` refuses them otherwise.
    """
    kinds = {kind: section for kind, section in sections.items() if section.component}
    taken = own_names | kinds.keys()
    owners = Counter(
        field.name for section in sections.values() for field, _ in fields(section.config)
    )
    parameters: dict[str, inspect.Parameter] = {}

    def add(section: str, config: type[Any], panel: str) -> None:
        """Add the flags of a section's fields, hidden without a panel of the help."""
        values = sections[section].values
        for field, hint in fields(config):
            full_name = f"{section}.{field.name}"
            names = [full_name] if field.name in taken else [field.name, full_name]
            name_in_help = names[0] if owners[field.name] == 1 else full_name
            default = values.get(field.name, field.default)
            for name in names:
                hidden = not panel or name != name_in_help
                flags = [_with_negation(flag(name), hint)]  # a file may have set a boolean field
                info = _option(field, hint, flags, default, rich_help_panel=panel, hidden=hidden)
                parameter = _parameter(name.replace(".", "__"), hint, info)
                # Several components may have the field. The selected one comes first.
                parameters.setdefault(parameter.name, parameter)

    for name, section in sections.items():
        if name not in kinds:
            add(name, section.config, panel=name)
    for kind, section in kinds.items():
        parameters[kind] = _parameter(kind, str, _choice(kind, section.component))
    for kind, section in kinds.items():
        add(kind, section.config, panel=f"{kind} {section.component}")
    for kind in kinds:
        for component in registry.components(kind):
            add(kind, component.config, panel="")
    return parameters


def _with_negation(name: str, hint: Any) -> str:
    """Return the flag, with its negation if it is a boolean one."""
    if _kind(hint) is bool:
        return f"{name}/--no-{name.removeprefix('--')}"
    return name


def _choice(kind: str, selected: str) -> Any:
    """Return the flag that selects a component.

    Each line of its help but the first is about another component.
    """
    components = registry.components(kind)
    others = [f"{other.name}: {other.about}" for other in components if other.name != selected]
    about = f"Selected: {selected}."
    if others:
        about += " Others:"
    return typer.Option(
        flag(kind),
        help="\n".join([about, *others]),
        metavar="NAME",
        rich_help_panel="components (--help with another NAME shows its flags)",
        autocompletion=lambda incomplete: _beginning_with(incomplete, registry.names(kind)),
    )


def _option(
    field: dataclasses.Field[Any], hint: Any, names: Sequence[str], default: Any, **more: Any
) -> Any:
    kind = _kind(hint)
    choices = field.metadata["choices"]
    metavar = None
    if kind is not bool:
        metavar = field.metadata["metavar"] or "|".join(choices) or _metavar(hint)

    def number(text: str) -> Any:
        try:
            return kind(text)
        except ValueError:
            wanted = "an integer" if kind is int else "a number"
            raise UsageError(f"{names[0]} must be {wanted}, not {text!r}") from None

    def completions(incomplete: str) -> list[str]:
        return _beginning_with(incomplete, [*choices, *field.metadata["suggestions"]()])

    return typer.Option(
        *names,
        help=f"{field.metadata['help']} {_default(default)}".rstrip(),
        metavar=metavar,
        show_default=False,
        parser=number if kind in (int, float) else None,
        autocompletion=completions,
        **more,
    )


def _metavar(hint: Any) -> str:
    for part in typing.get_args(hint) or [hint]:  # N for `str | int`, too
        if part in _METAVARS:
            return _METAVARS[part]
    return "NAME"


def _beginning_with(incomplete: str, values: Iterable[str]) -> list[str]:
    return [value for value in values if value.startswith(incomplete)]


def _kind(hint: Any) -> type[Any]:
    """Return the type of a flag.

    It is `int` for `int | None`, `Path` for `tuple[Path, ...]`, and `str` for `str | int`.
    """
    if typing.get_origin(hint) is tuple:
        return typing.cast(type[Any], typing.get_args(hint)[0])
    accepted = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    kinds = [kind for kind in accepted if kind is not type(None)]
    return kinds[0] if len(kinds) == 1 else str


def _default(value: Any) -> str:
    if value is None or value is False or value in ("", (), dataclasses.MISSING):
        return ""
    if isinstance(value, float):
        return f"[default: {value:g}]"
    return f"[default: {value}]"


def _parameter(name: str, hint: Any, info: Any, required: bool = False) -> inspect.Parameter:
    kind: Any = _kind(hint)
    if typing.get_origin(hint) is tuple:  # a flag that may be repeated
        kind = list[kind]
    default: Any = inspect.Parameter.empty
    if not required:
        kind = kind | None
        default = None
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, info]
    )
