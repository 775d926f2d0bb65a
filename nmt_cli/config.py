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
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from nmt_cli import registry
from nmt_cli.errors import UsageError, near, nearest, shown
from nmt_cli.files.settings import read_settings
from nmt_cli.presets import PRESETS

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
EXTRAS = ("observer", "sentences", "preparation")  # the kinds of a run's extras
# The origin of flags: messages name a preset or a file before a setting, and nothing before a flag.
COMMAND_LINE = ""

# The bound of integers without one of their own: SentencePiece takes no more, nor PyTorch the
# product of three.
LARGEST_INTEGER = 2**31 - 1


@dataclass(frozen=True)
class RunConfig:
    """The configuration of a run: the settings of the training loop and of a component of each
    kind.
    """

    training: Any
    components: Mapping[str, Any]  # kind -> instance of the component's dataclass
    # Name -> instance of the dataclass of each registered extra, used or not.
    extras: Mapping[str, Any]

    def __getitem__(self, kind: str) -> Any:
        return self.components[kind]

    def to_json(self) -> dict[str, Any]:
        """Return the sections as plain objects; a component's has its `name` besides its fields."""
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
        """Return the settings of each extra of a kind that a flag, a file or a preset has switched
        on.
        """
        names = [name for name in registry.names(kind) if name in self.extras]
        return [
            self.extras[name] for name in names if self.extras[name] != type(self.extras[name])()
        ]


class Section(NamedTuple):
    """Settings of one dataclass by field, and where each is from."""

    config: type[Any]
    values: dict[str, Any]
    origins: dict[str, str]
    component: str = ""  # the name of the component that it configures

    def instance(self, part: type[Any] | None = None) -> Any:
        """Return an instance of the section's dataclass, or of one that has a `part` of its fields."""
        config = part or self.config
        values = {
            name: value
            for name, value in self.values.items()
            if name in config.__dataclass_fields__
        }
        return construct(config, values, self.origins)


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
    return [component for kind in EXTRAS for component in registry.components(kind)]


def extended(training: type[Any]) -> type[Any]:
    """Return the dataclass of the loop's section: the fields of `training`, and those of all
    registered extras.
    """
    parts = [training, *(extra.config for extra in extras())]
    names = [name for part in parts for name in part.__dataclass_fields__]
    if twice := [name for name, number in Counter(names).items() if number > 1]:
        raise UsageError(
            f"two dataclasses of settings of a run have the field {twice[0]!r}. Rename one"
        )
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
    """Return the settings of a run by section: `base`, of --init-from < `preset` < `file` <
    `flags`.

    `training` is the dataclass of the loop's own settings, without those of the extras. The file
    may name the preset.
    """
    training = extended(training)
    from_file = file_values(file)
    preset_of_file = from_file.pop("preset", None)
    place = COMMAND_LINE if preset else f"{file}: "
    preset = preset or preset_of_file
    from_preset = {}
    if preset is not None:
        if not isinstance(preset, str) or preset not in PRESETS:
            listing = "`nmt train --list-presets` shows them all."
            near_names = nearest(str(preset), PRESETS, listing)
            raise UsageError(f"{place}there is no preset called {shown(preset)}. {near_names}")
        # A preset is written for the paper's components: its settings get their sections.
        paper = {
            kind: registry.find(kind, name).config for kind, name in DEFAULT_COMPONENTS.items()
        }
        for name, value in PRESETS[preset].differs.items():
            owners = _owners(name, {"training": training, **paper})
            from_preset[f"{owners[0]}.{name}" if owners else name] = value
    layers = {
        "--init-from: ": base or {},
        f"preset {preset}: ": from_preset,
        f"{file}: ": from_file,
        COMMAND_LINE: flags,
    }
    return sections(layers, DEFAULT_COMPONENTS, training=training)


def sections(
    layers: Mapping[str, Mapping[str, Any]], defaults: Mapping[str, str], **classes: type[Any]
) -> dict[str, Section]:
    """Return the settings of the layers by section: those of `classes`, and one for a component of
    each kind.

    Args:
        layers: settings by their origin, with which messages begin; later layers override earlier
            ones. The name of a kind selects a component. The settings of a component are dropped
            where a later layer selects another one that does not have them.
        defaults: the component of each kind that is used unless a layer selects another.
    """
    result = {name: Section(config, {}, {}) for name, config in classes.items()}
    for kind, default in defaults.items():
        origin, name = COMMAND_LINE, default
        for place, layer in layers.items():
            if kind in layer:
                origin, name = place, str(layer[kind])
        try:
            result[kind] = Section(registry.find(kind, name).config, {}, {}, name)
        except UsageError as error:
            raise UsageError(f"{origin}{error}") from error
    classes = {name: section.config for name, section in result.items()}
    origins = list(layers)
    for position, origin in enumerate(origins):
        later = {name for place in origins[position + 1 :] for name in layers[place]}
        for name, value in layers[origin].items():
            owner = None if name in defaults else _place(name, classes, origin, later)
            if owner is not None:
                section, field = result[owner[0]], owner[1]
                other = section.config.__dataclass_fields__[field].metadata.get("instead_of")
                if value is not None and section.origins.get(other, origin) != origin:
                    del section.values[other], section.origins[other]
                section.values[field] = value
                section.origins[field] = origin
    return result


def _place(
    name: str, classes: Mapping[str, type[Any]], origin: str, later: Collection[str]
) -> tuple[str, str] | None:
    """Return the section and the field of the setting `name`, or None if a kind in `later` replaced
    its component.
    """
    section, _, field = name.rpartition(".")
    owners = [owner for owner in _owners(field, classes) if section in ("", owner)]
    if len(owners) == 1:
        return owners[0], field
    if owners:
        dotted = " or ".join(flag(f"{owner}.{field}") for owner in owners)
        raise UsageError(f"{origin}{flag(field)} is ambiguous; give {dotted}")
    for kind in [kind for kind in classes if kind in registry.KINDS]:
        configs = {component.name: component.config for component in registry.components(kind)}
        if section in ("", kind) and (owners := _owners(field, configs)):
            if kind in later:
                return None
            selected = next(name for name, config in configs.items() if config is classes[kind])
            similar = [
                known
                for known, _ in fields(classes[kind])
                if known.name in near(field, [known.name])
            ]
            advice = f"Remove it, or add --{kind} {' or '.join(owners)}"
            advice += "".join(
                f". {selected} has {flag(known)}: {known.metadata['help']}" for known in similar
            )
            raise UsageError(
                f"{origin}{flag(name)} belongs to the {kind} {' and '.join(owners)}, not to "
                f"{selected}. {advice}"
            )
    known = [
        known
        for owner, cls in classes.items()
        if section in ("", owner)
        for known in cls.__dataclass_fields__
    ]
    raise UsageError(
        f"{origin}there is no setting called {shown(name)}. {nearest(field, known or classes)}"
    )


def _owners(field: str, classes: Mapping[str, type[Any]]) -> list[str]:
    return [section for section, cls in classes.items() if field in cls.__dataclass_fields__]


def file_values(path: Path | None) -> dict[str, Any]:
    """Return the settings of a TOML, YAML or JSON file, flat or in sections, such as the
    config.json of a run.
    """
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
    """Return sections as flat settings: {"model": {"name": "x", "d_ff": 1}} is {"model": "x",
    "model.d_ff": 1}.
    """
    _check_object(content, origin)
    flat: dict[str, Any] = {}
    for key, value in content.items():
        name = str(key).replace("-", "_")
        for field, inner in value.items() if isinstance(value, Mapping) else [("name", value)]:
            full = name if field == "name" else f"{name}.{field}".replace("-", "_")
            if full in flat:
                raise UsageError(f"{origin}: {full} is there twice")
            flat[full] = inner
    return flat


def construct(cls: type[Any], values: Mapping[str, Any], origins: Mapping[str, str]) -> Any:
    """Return an instance of the dataclass `cls` with the fields `values`; messages begin with the
    origin of a value.

    Raises:
        UsageError: a name is unknown, or a value has the wrong type or is out of bounds.
    """
    known, hints = cls.__dataclass_fields__, typing.get_type_hints(cls)
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
    own: Any, saved: Any, names: Iterable[str], chosen: Collection[str], source: str
) -> Any:
    """Return the dataclass `own` with the fields `names` of `saved`, an instance of the same class.

    Raises:
        UsageError: the user set one of the fields, one in `chosen`, to another value than it has in
            `saved`, which is of the origin `source`.
    """
    defaults = type(own)()
    for name in names:
        wanted, value = getattr(own, name), getattr(saved, name)
        if wanted != value and (name in chosen or wanted != getattr(defaults, name)):
            raise UsageError(
                f"{flag(name)} {wanted} contradicts {source}, which was made with {value}"
            )
    return dataclasses.replace(own, **{name: getattr(saved, name) for name in names})


def check_values(config: Any) -> None:
    """Raise UsageError if a field of the dataclass instance `config` has a value that does not fit."""
    hints = typing.get_type_hints(type(config))
    for field in dataclasses.fields(config):
        if (
            "title" not in field.metadata and hints[field.name] is not Any
        ):  # the dataclass of a group checks itself
            _checked(field, hints[field.name], getattr(config, field.name), "")


def fields(cls: type[Any]) -> Iterator[tuple[dataclasses.Field[Any], Any]]:
    """Yield the fields of a dataclass that are made by `option` or `argument`, with their types."""
    hints = typing.get_type_hints(cls)
    return (
        (field, hints[field.name]) for field in dataclasses.fields(cls) if "help" in field.metadata
    )


def flag(field: str | dataclasses.Field[Any]) -> str:
    """Return the flag of a field, given by itself or by its name: `--d-ff`, or `--model.d-ff` for
    `model.d_ff`.
    """
    if isinstance(field, dataclasses.Field):
        names = field.metadata.get("names") or [flag(field.name)]
        return str(names[0])
    return "--" + field.replace("_", "-")


def _checked(field: dataclasses.Field[Any], hint: Any, value: Any, origin: str) -> Any:
    place = origin + (flag(field) if "help" in field.metadata else field.name)
    value = _typed(hint, value, place)
    choices = field.metadata.get("choices", ())
    minimum, maximum = field.metadata.get("minimum"), field.metadata.get("maximum")
    if isinstance(value, int) and maximum is None:
        maximum = LARGEST_INTEGER
    if isinstance(value, str) and re.search("[\ud800-\udfff]", value):
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
    accepted = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    for wanted in accepted:
        if typing.get_origin(wanted) is tuple and isinstance(
            value, (list, tuple, str)
        ):  # a text is a list of one
            several = [value] if isinstance(value, str) else value
            return tuple(_typed(typing.get_args(wanted)[0], each, place) for each in several)
        if wanted is float and type(value) is int and abs(value) <= sys.float_info.max:
            return float(value)
        if wanted is int and type(value) is float and value.is_integer():  # 2e3
            return int(value)
        kind = typing.get_origin(wanted) or wanted
        if type(value) is kind or (kind is Path and isinstance(value, (str, Path))):
            return Path(value) if kind is Path else value
    kinds = [typing.get_origin(wanted) or wanted for wanted in accepted if wanted is not type(None)]
    names = ["list" if kind is tuple else kind.__name__ for kind in kinds]
    raise UsageError(f"{place} must be of type {' or '.join(names)}, not {shown(value)}")
