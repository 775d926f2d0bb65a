"""Configuration: defaults < preset < file < flags, typed, and JSON both ways.

A run's configuration has a section for the training loop and one for each kind of component, all
frozen dataclasses. A setting is named by its field, `d_ff`. `model.d_ff` is the same, and is needed
only where two sections have the field. The extras of a run, such as observers, have dataclasses of
their own, whose fields are in the section of the loop.
"""

from __future__ import annotations

import dataclasses
import math
import re
import sys
import types
import typing
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from nmt_cli import registry
from nmt_cli.errors import UsageError, near, nearest, shown
from nmt_cli.files.settings import read_settings
from nmt_cli.presets import PRESETS, find_preset

DEFAULT_COMPONENTS = {
    "model": "transformer",
    "attention": "full",
    "criterion": "label_smoothed_cross_entropy",
    "optimizer": "adam",
    "schedule": "inverse_sqrt",
}
"""The component of each kind that a run uses by default: the paper's."""
ABOUT_RUN = ("data", "environment", "imports", "modules", "origin")
"""The entries of a run's config.json that are not settings."""
# The origin of flags. Messages name a preset or a file before a setting, and nothing before a flag.
COMMAND_LINE = ""

# SentencePiece takes no larger integers, nor does PyTorch take the product of three of them.
LARGEST_INTEGER = 2**31 - 1


@dataclass(frozen=True)
class RunConfig:
    """The configuration of a run: the training loop, and a component of each kind."""

    training: Any
    components: Mapping[str, Any]  # kind -> instance of the component's dataclass
    extras: Mapping[str, Any]  # name -> instance of its dataclass, for all registered extras

    def __getitem__(self, kind: str) -> Any:
        return self.components[kind]

    def to_json(self) -> dict[str, Any]:
        """Return the sections as plain objects. A component's has its `name` besides its fields."""
        sections: dict[str, Any] = {"training": {}}
        for config in (self.training, *self.extras.values()):
            sections["training"] |= dataclasses.asdict(config)
        for kind, config in self.components.items():
            sections[kind] = {
                "name": registry.component_of(config).name,
                **dataclasses.asdict(config),
            }
        return sections

    def identity(self) -> dict[str, Any]:
        """Return the sections without the settings of the loop that a resumed run may change."""
        sections = self.to_json()
        for config in (self.training, *self.extras.values()):
            for field in dataclasses.fields(config):
                if field.metadata.get("may_change"):
                    del sections["training"][field.name]
        return sections

    def used(self, kind: str) -> list[Any]:
        """Return the configurations of the extras of a kind that have a setting switched on."""
        configs = [self.extras[name] for name in registry.names(kind) if name in self.extras]
        return [config for config in configs if config != type(config)()]


class Section(NamedTuple):
    """Settings of one dataclass by field, and where each is from."""

    config: type[Any]
    values: dict[str, Any]
    origins: dict[str, str]
    component: str = ""  # the name of the component that it configures

    def set(self, field: str, value: Any, origin: str) -> None:
        """Set a field, and drop an earlier layer's value of the field that this one replaces."""
        replaced = self.config.__dataclass_fields__[field].metadata.get("instead_of")
        if value is not None and self.origins.get(replaced, origin) != origin:
            del self.values[replaced], self.origins[replaced]
        self.values[field] = value
        self.origins[field] = origin

    def instance(self, part: type[Any] | None = None) -> Any:
        """Return an instance of the dataclass, or of one that has a `part` of its fields."""
        config = part or self.config
        names = [name for name in self.values if name in config.__dataclass_fields__]
        return construct(config, {name: self.values[name] for name in names}, self.origins)


def resolve(
    training: type[Any],
    flags: Mapping[str, Any],
    *,
    preset: str | None = None,
    file: Path | None = None,
    base: Mapping[str, Any] | None = None,
) -> RunConfig:
    """Return the configuration of a run, from the sections of `sections_of_run`.

    Raises:
        UsageError: a name is unknown or ambiguous, or a value is invalid.
    """
    settings = sections_of_run(training, flags, preset, file, base)
    loop = settings.pop("training")
    return RunConfig(
        loop.instance(training),
        {kind: component.instance() for kind, component in settings.items()},
        {extra.name: loop.instance(extra.config) for extra in extras()},
    )


def extras() -> list[registry.Component]:
    """Return the registered extras of runs."""
    kinds = registry.EXTRAS_OF_RUN
    return [component for kind in kinds for component in registry.components(kind)]


def extended(training: type[Any]) -> type[Any]:
    """Return the dataclass of the loop's section: `training` with the fields of all extras."""
    parts = [training, *(extra.config for extra in extras())]
    names = Counter(name for part in parts for name in part.__dataclass_fields__)
    for name, number in names.items():
        if number > 1:
            raise UsageError(
                f"two dataclasses of settings of a run have the field {name!r}. Rename one"
            )
    # In reverse, because a dataclass has the fields of its last base first.
    return dataclasses.make_dataclass(
        training.__name__, [], bases=tuple(reversed(parts)), frozen=True
    )


def sections_of_run(
    training: type[Any],
    flags: Mapping[str, Any],
    preset: str | None,
    file: Path | None,
    base: Mapping[str, Any] | None = None,
) -> dict[str, Section]:
    """Return the settings of a run by section: `base` < `preset` < `file` < `flags`.

    Args:
        training: the dataclass of the loop, without the fields of extras.
        preset: the name of a preset, which the file may have, too.
        base: the settings of the checkpoint of --init-from.
    """
    training = extended(training)
    file_settings = file_values(file)
    preset_in_file = file_settings.pop("preset", None)
    preset_settings = {}
    if preset:
        preset_settings = _preset_settings(preset, training, COMMAND_LINE)
    elif preset_in_file is not None:
        preset = preset_in_file
        preset_settings = _preset_settings(preset, training, f"{file}: ")
    layers = {
        "--init-from: ": base or {},
        f"preset {preset}: ": preset_settings,
        f"{file}: ": file_settings,
        COMMAND_LINE: flags,
    }
    return sections(layers, DEFAULT_COMPONENTS, training=training)


def _preset_settings(preset: Any, training: type[Any], origin: str) -> dict[str, Any]:
    """Return the settings of a preset, each with its section."""
    named = find_preset(preset) if isinstance(preset, str) else None
    if named is None:
        advice = nearest(str(preset), PRESETS, "`nmt train --list-presets` shows them all.")
        raise UsageError(f"{origin}there is no preset called {shown(preset)}. {advice}")
    # A preset is written for the paper's components. With a section, a setting of them cannot be
    # taken for a setting of another component that has this name.
    classes = {"training": training}
    for kind, component in DEFAULT_COMPONENTS.items():
        classes[kind] = registry.find(kind, component).config
    settings = {}
    for name, value in named.differs.items():
        owners = _owners(name, classes)
        full_name = f"{owners[0]}.{name}" if owners else name
        settings[full_name] = value
    return settings


def sections(
    layers: Mapping[str, Mapping[str, Any]], defaults: Mapping[str, str], **classes: type[Any]
) -> dict[str, Section]:
    """Return the settings of the layers by section: `classes`, and a component of each kind.

    Args:
        layers: settings by their origin, with which messages begin. Later layers override earlier
            ones. The name of a kind selects a component. The settings of a component are dropped
            where a later layer selects another one that does not have them.
        defaults: the component of each kind that is used unless a layer selects another.
    """
    result = {name: Section(config, {}, {}) for name, config in classes.items()}
    for kind, default in defaults.items():
        result[kind] = _section_of_component(kind, default, layers)
    remaining = list(layers.values())
    for origin, settings in layers.items():
        remaining.pop(0)
        later_names = {name for later in remaining for name in later}
        for name, value in settings.items():
            if name in defaults:  # it has selected a component above
                continue
            place = _place(name, result, origin, later_names)
            if place is not None:
                section, field = place
                result[section].set(field, value, origin)
    return result


def _section_of_component(
    kind: str, default: str, layers: Mapping[str, Mapping[str, Any]]
) -> Section:
    """Return the section, still empty, of the component of a kind that the layers select."""
    origin = COMMAND_LINE
    name = default
    for place, settings in layers.items():
        if kind in settings:
            origin = place
            name = str(settings[kind])
    try:
        return Section(registry.find(kind, name).config, {}, {}, name)
    except UsageError as error:
        raise UsageError(f"{origin}{error}") from error


def _place(
    name: str, sections: Mapping[str, Section], origin: str, later_names: Collection[str]
) -> tuple[str, str] | None:
    """Return the section and the field of the setting `name`.

    None: it is a setting of a component in whose place a later layer selects another.
    """
    section, _, field = name.rpartition(".")
    classes = {}
    for owner in sections:
        if section in ("", owner):
            classes[owner] = sections[owner].config
    owners = _owners(field, classes)
    if len(owners) == 1:
        return owners[0], field
    if owners:
        dotted = " or ".join(flag(f"{owner}.{field}") for owner in owners)
        raise UsageError(f"{origin}{flag(field)} is ambiguous; give {dotted}")
    for kind in registry.KINDS:
        if kind not in classes:
            continue
        configs = {component.name: component.config for component in registry.components(kind)}
        components = _owners(field, configs)
        if components and kind in later_names:
            return None
        if components:
            raise UsageError(origin + _of_another_component(name, sections[kind], kind, components))
    known = [known for cls in classes.values() for known in cls.__dataclass_fields__]
    raise UsageError(
        f"{origin}there is no setting called {shown(name)}. {nearest(field, known or sections)}"
    )


def _of_another_component(
    name: str, selected: Section, kind: str, components: Sequence[str]
) -> str:
    """Return the message about a setting that only components have which are not selected."""
    message = (
        f"{flag(name)} belongs to the {kind} {' and '.join(components)}, not to "
        f"{selected.component}. Remove it, or add --{kind} {' or '.join(components)}"
    )
    for known, _ in fields(selected.config):
        if near(name.rpartition(".")[2], [known.name]):
            message += f". {selected.component} has {flag(known)}: {known.metadata['help']}"
    return message


def _owners(field: str, classes: Mapping[str, type[Any]]) -> list[str]:
    return [name for name, cls in classes.items() if field in cls.__dataclass_fields__]


def file_values(path: Path | None) -> dict[str, Any]:
    """Return the settings of a TOML, YAML or JSON file, flat or in sections."""
    if path is None:
        return {}
    content = read_settings(path)
    if isinstance(content, Mapping):
        if "schema" in content and "sections" in content:  # a checkpoint's
            content = content["sections"]
        elif isinstance(content.get("training"), Mapping):  # a run's
            content = {name: value for name, value in content.items() if name not in ABOUT_RUN}
    return flatten(content, str(path))


def flatten(content: Any, origin: str) -> dict[str, Any]:
    """Return sections as flat settings.

    {"model": {"name": "x", "d_ff": 1}} is {"model": "x", "model.d_ff": 1}.
    """
    _check_object(content, origin)
    flat: dict[str, Any] = {}
    for section, content_of_section in content.items():
        values = content_of_section
        if not isinstance(values, Mapping):
            values = {"name": content_of_section}
        for field, value in values.items():
            name = str(section) if field == "name" else f"{section}.{field}"
            name = name.replace("-", "_")
            if name in flat:
                raise UsageError(f"{origin}: {name} is there twice")
            flat[name] = value
    return flat


def construct(cls: type[Any], values: Mapping[str, Any], origins: Mapping[str, str]) -> Any:
    """Return an instance of the dataclass `cls` with the fields `values`.

    Raises:
        UsageError: a name is unknown, or a value has the wrong type or is out of bounds. The
            message begins with the origin of the value.
    """
    known = cls.__dataclass_fields__
    hints = typing.get_type_hints(cls)
    checked = {}
    for name, value in values.items():
        if name not in known:
            raise UsageError(
                f"{origins[name]}there is no setting called {shown(name)}. {nearest(name, known)}"
            )
        checked[name] = _checked(known[name], hints[name], value, origins[name])
    try:
        return cls(**checked)
    except UsageError as error:  # by the dataclass itself, about some of its fields
        places = [origins[name] for name in checked if flag(known[name]) in str(error)]
        raise UsageError("".join([*dict.fromkeys(places), str(error)])) from error


def restored(cls: type[Any], values: Any, origin: str) -> Any:
    """Return an instance of the dataclass `cls` with the fields `values`, all of one origin."""
    _check_object(values, origin)
    return construct(cls, values, dict.fromkeys(values, f"{origin}: "))


def _check_object(content: Any, origin: str) -> None:
    if not isinstance(content, Mapping):
        raise UsageError(
            f"{origin}: expected an object of settings by name, found {type(content).__name__}"
        )


def with_settings_of(
    config: Any, saved: Any, names: Iterable[str], chosen: Collection[str], source: str
) -> Any:
    """Return the dataclass `config` with the fields `names` of `saved`, of the same class.

    Raises:
        UsageError: the user set one of the fields, one in `chosen`, to another value than it has in
            `saved`, which is of the origin `source`.
    """
    defaults = type(config)()
    saved_values = {name: getattr(saved, name) for name in names}
    for name, saved_value in saved_values.items():
        value = getattr(config, name)
        was_chosen = name in chosen or value != getattr(defaults, name)
        if was_chosen and value != saved_value:
            raise UsageError(
                f"{flag(name)} {value} contradicts {source}, which was made with {saved_value}"
            )
    return dataclasses.replace(config, **saved_values)


def check_values(config: Any) -> None:
    """Raise UsageError if a field of the dataclass instance `config` has an unfit value."""
    hints = typing.get_type_hints(type(config))
    for field in dataclasses.fields(config):
        hint = hints[field.name]
        is_group = "title" in field.metadata  # its dataclass checks itself
        if not is_group and hint is not Any:
            _checked(field, hint, getattr(config, field.name), "")


def fields(cls: type[Any]) -> Iterator[tuple[dataclasses.Field[Any], Any]]:
    """Yield the fields of a dataclass that are made by `option` or `argument`, with their types."""
    hints = typing.get_type_hints(cls)
    for field in dataclasses.fields(cls):
        if "help" in field.metadata:
            yield field, hints[field.name]


def flag(field: str | dataclasses.Field[Any]) -> str:
    """Return the flag of a field or of its name: `--model.d-ff` for `model.d_ff`."""
    if isinstance(field, dataclasses.Field):
        names = field.metadata.get("names") or [flag(field.name)]
        return str(names[0])
    return "--" + field.replace("_", "-")


def _checked(field: dataclasses.Field[Any], hint: Any, value: Any, origin: str) -> Any:
    """Return a value for the field, converted to its type, or raise UsageError."""
    name = flag(field) if "help" in field.metadata else field.name
    place = origin + name
    value = _typed(hint, value, place)
    choices = field.metadata.get("choices", ())
    minimum = field.metadata.get("minimum")
    maximum = field.metadata.get("maximum")
    if isinstance(value, int) and maximum is None:
        maximum = LARGEST_INTEGER
    if isinstance(value, str) and re.search("[\ud800-\udfff]", value):  # surrogates
        raise UsageError(f"{place} must be text in UTF-8, not {shown(value)}")
    if choices and value not in choices:
        raise UsageError(f"{place} cannot be {shown(value)}. {nearest(str(value), choices)}")
    if isinstance(value, float) and not math.isfinite(value):
        raise UsageError(f"{place} must be a finite number, not {shown(value)}")
    if value is not None and minimum is not None and not value >= minimum:
        raise UsageError(f"{place} must be at least {minimum:,}, not {shown(value)}")
    if value is not None and maximum is not None and not value <= maximum:
        raise UsageError(f"{place} must be at most {maximum:,}, not {shown(value)}")
    return value


def _typed(hint: Any, value: Any, place: str) -> Any:
    """Return the value as the first type of the hint that it fits, or raise UsageError."""
    accepted = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    names = []
    for wanted in accepted:
        kind = typing.get_origin(wanted) or wanted
        if kind is tuple and isinstance(value, (list, tuple, str)):
            items = [value] if isinstance(value, str) else value
            hint_of_item = typing.get_args(wanted)[0]
            return tuple(_typed(hint_of_item, item, place) for item in items)
        if kind is float and type(value) is int and abs(value) <= sys.float_info.max:
            return float(value)
        if kind is int and type(value) is float and value.is_integer():  # 2e3
            return int(value)
        if kind is Path and isinstance(value, (str, Path)):
            return Path(value)
        # Not isinstance: True is an instance of int.
        if type(value) is kind:
            return value
        if kind is not type(None):
            names.append("list" if kind is tuple else kind.__name__)
    raise UsageError(f"{place} must be of type {' or '.join(names)}, not {shown(value)}")
