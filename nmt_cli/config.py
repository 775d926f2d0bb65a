"""Configuration: defaults < preset < file < flags, typed, and JSON both ways.

A run's configuration is one frozen dataclass a section: `training`, and one for every kind of component. On the command
line, in presets and in files the fields of all sections share one flat namespace, so `--d-model` needs no prefix.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
import tomllib
import types
import typing
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nmt_cli import registry
from nmt_cli.errors import UsageError, nearest
from nmt_cli.presets import PRESETS

DEFAULT_COMPONENTS = {
    "model": "transformer",
    "attention": "full",
    "criterion": "label_smoothed_cross_entropy",
    "optimizer": "adam",
    "schedule": "inverse_sqrt",
}
"""What a run uses unless told otherwise: the paper's choice of every kind."""


@dataclass(frozen=True)
class RunConfig:
    """Everything that defines a training run but its data: the loop's settings and one configuration for each kind."""

    training: Any
    components: Mapping[str, Any]  # kind -> instance of the component's dataclass

    def __getitem__(self, kind: str) -> Any:
        return self.components[kind]

    def to_json(self) -> dict[str, Any]:
        """Sections as plain objects; a component's has its `name` besides its fields."""
        sections: dict[str, Any] = {"training": dataclasses.asdict(self.training)}
        for kind, config in self.components.items():
            sections[kind] = {"name": registry.component_of(config).name, **dataclasses.asdict(config)}
        return sections


def resolve(
    training: type[Any],
    flags: Mapping[str, Any],
    *,
    preset: str | None = None,
    file: Path | None = None,
) -> RunConfig:
    """The configuration that the layers give: defaults < `preset` < `file` < `flags`.

    Args:
        training: the dataclass of the loop's own settings.
        flags: what the user gave, by field name, and by kind for the choice of a component.

    Raises:
        UsageError: an unknown name, a value of another type, or a field of a component that was not selected.
    """
    layers = [(f"preset {preset}", preset_values(preset)), (str(file), file_values(file)), ("the command line", flags)]
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for origin, layer in layers:
        for name, value in layer.items():
            values[name] = value
            origins[name] = origin
    sections = _sections(training, values, origins)
    _check_known(sections, values, origins)
    built = {kind: construct(cls, _own(cls, values), origins) for kind, cls in sections.items()}
    return RunConfig(built.pop("training"), built)


def preset_values(name: str | None) -> dict[str, Any]:
    """The fields in which preset `name` differs from the base model.

    Raises:
        UsageError: there is no such preset.
    """
    if name is None:
        return {}
    if name not in PRESETS:
        raise UsageError(
            f"there is no preset called {name!r}. {nearest(name, PRESETS)} `nmt train --list-presets` shows them all."
        )
    return dict(PRESETS[name].differs)


def file_values(path: Path | None) -> dict[str, Any]:
    """The fields of a configuration file, TOML or JSON: flat, or in sections; a run's or a checkpoint's config.json
    is one.

    Raises:
        UsageError: the file is missing, or is neither.
    """
    if path is None:
        return {}
    try:
        text = path.read_text(encoding="utf-8")
        content = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    except OSError as error:
        raise UsageError(f"{path}: cannot read this configuration file: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}: not a {'TOML' if path.suffix == '.toml' else 'JSON'} file: {error}") from error
    return flatten(_settings_in(content), str(path))


def _settings_in(content: Any) -> Any:
    """The settings alone: a checkpoint has them among facts about itself, a run beside the names of its data and
    plug-ins.
    """
    if not isinstance(content, Mapping):
        return content
    if "schema" in content and "sections" in content:
        return content["sections"]
    if isinstance(content.get("training"), Mapping):
        return {name: value for name, value in content.items() if name not in ("data", "imports")}
    return content


def flatten(content: Any, origin: str) -> dict[str, Any]:
    """Sections folded into the flat namespace: {"model": {"name": "x", "d_ff": 1}} is {"model": "x", "d_ff": 1}.

    Raises:
        UsageError: `content` is no object, or a section holds something else than fields.
    """
    if not isinstance(content, Mapping):
        raise UsageError(f"{origin}: expected an object of settings by name, found {type(content).__name__}")
    flat: dict[str, Any] = {}
    for key, value in content.items():
        name = str(key).replace("-", "_")
        if isinstance(value, Mapping):
            flat.update(
                {(name if field == "name" else str(field).replace("-", "_")): inner for field, inner in value.items()}
            )
        else:
            flat[name] = value
    return flat


def construct(cls: type[Any], values: Mapping[str, Any], origins: Mapping[str, str]) -> Any:
    """An instance of the dataclass `cls` from loosely typed values.

    Raises:
        UsageError: a value is of another type, not among the choices, or out of bounds; the message names its origin.
    """
    hints = typing.get_type_hints(cls)
    checked = {}
    for field in dataclasses.fields(cls):
        if field.name in values:
            place = f"{origins.get(field.name, cls.__name__)}: {flag(field.name)}"
            checked[field.name] = _checked(field, hints[field.name], values[field.name], place)
    try:
        return cls(**checked)
    except UsageError as error:
        raise UsageError(f"{_origins_named(str(error), checked, origins)}{error}") from error


def _origins_named(message: str, names: Iterable[str], origins: Mapping[str, str]) -> str:
    """Where the fields were set that `message`, a dataclass's own refusal, speaks of; else where any of `names` was."""
    given = [name for name in names if name in origins]
    spoken_of = [name for name in given if re.search(re.escape(flag(name)) + r"(?![\w-])", message)]
    places = dict.fromkeys(origins[name] for name in spoken_of or given)
    return "".join(f"{place}: " for place in places)


def restored(cls: type[Any], values: Any, origin: str) -> Any:
    """The instance of the dataclass `cls` that `dataclasses.asdict` made `values` of.

    Raises:
        UsageError: a name is unknown, or a value is none that the field may have; the message begins with `origin`.
    """
    if not isinstance(values, Mapping):
        raise UsageError(f"{origin}: expected an object of settings by name, found {type(values).__name__}")
    unknown = sorted(map(str, values.keys() - {field.name for field in dataclasses.fields(cls)}))
    if unknown:
        raise UsageError(f"{origin}: unknown settings: {', '.join(unknown)}")
    return construct(cls, values, dict.fromkeys(values, origin))


def with_settings_of(own: Any, saved: Any, names: Iterable[str], chosen: Collection[str], source: str) -> Any:
    """The dataclass `own` with the fields `names` as in `saved`, an instance of the same class.

    Args:
        chosen: the fields of `own` that were set on purpose; so were, surely, those that are not at their defaults.
        source: what `saved` comes from, for the message.

    Raises:
        UsageError: one of the fields was set on purpose, to something else than in `saved`.
    """
    defaults = type(own)()
    taken = {name: getattr(saved, name) for name in names}
    for name, value in taken.items():
        wanted = getattr(own, name)
        if wanted != value and (name in chosen or wanted != getattr(defaults, name)):
            raise UsageError(f"{flag(name)} {wanted} contradicts {source}, which was made with {value}")
    return dataclasses.replace(own, **taken)


def check_values(config: Any) -> None:
    """Raises UsageError where a field of the dataclass instance `config` has a value that it may not have."""
    for field, hint in fields(type(config)):
        if "help" in field.metadata:
            _checked(field, hint, getattr(config, field.name), flag(field.name))


def fields(cls: type[Any]) -> Iterator[tuple[dataclasses.Field[Any], Any]]:
    """The fields of a configuration dataclass with their resolved types."""
    hints = typing.get_type_hints(cls)
    for field in dataclasses.fields(cls):
        yield field, hints[field.name]


def flag(name: str) -> str:
    """How the field `name` is written on the command line."""
    return "--" + name.replace("_", "-")


def _sections(training: type[Any], values: Mapping[str, Any], origins: Mapping[str, str]) -> dict[str, type[Any]]:
    sections = {"training": training}
    for kind, default in DEFAULT_COMPONENTS.items():
        try:
            sections[kind] = registry.find(kind, str(values.get(kind, default))).config
        except UsageError as error:
            raise UsageError(f"{origins[kind]}: {error}") from error
    owners: dict[str, str] = {}
    for section, cls in sections.items():
        for field in dataclasses.fields(cls):
            if field.name in owners:
                raise UsageError(
                    f"{flag(field.name)} belongs to {owners[field.name]} and to {section}: one component must "
                    f"rename its field"
                )
            owners[field.name] = section
    return sections


def _own(cls: type[Any], values: Mapping[str, Any]) -> dict[str, Any]:
    return {field.name: values[field.name] for field in dataclasses.fields(cls) if field.name in values}


def _check_known(sections: Mapping[str, type[Any]], values: Mapping[str, Any], origins: Mapping[str, str]) -> None:
    known = {field.name for cls in sections.values() for field in dataclasses.fields(cls)} | set(DEFAULT_COMPONENTS)
    for name in values:
        if name in known:
            continue
        for kind in DEFAULT_COMPONENTS:
            for component in registry.components(kind):
                if any(field.name == name for field in dataclasses.fields(component.config)):
                    raise UsageError(
                        f"{origins[name]}: {flag(name)} belongs to the {kind} {component.name}, which is not "
                        f"selected; add --{kind} {component.name}"
                    )
        raise UsageError(f"{origins[name]}: there is no setting called {name!r}. {nearest(name, known)}")


def _checked(field: dataclasses.Field[Any], hint: Any, value: Any, place: str) -> Any:
    value = _typed(hint, value, place)
    choices = field.metadata.get("choices", ())
    minimum, maximum = field.metadata.get("minimum"), field.metadata.get("maximum")
    if choices and value not in choices:
        raise UsageError(f"{place} must be one of {', '.join(choices)}, not {value!r}. {nearest(str(value), choices)}")
    if isinstance(value, float) and not math.isfinite(value):
        raise UsageError(f"{place} must be a finite number, not {value!r}")
    if value is not None and minimum is not None and not value >= minimum:
        raise UsageError(f"{place} must be at least {minimum:g}, not {value!r}")
    if value is not None and maximum is not None and not value <= maximum:
        raise UsageError(f"{place} must be at most {maximum:g}, not {value!r}")
    return value


def _typed(hint: Any, value: Any, place: str) -> Any:
    accepted = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    if value is None and type(None) in accepted:
        return None
    for wanted in accepted:
        if type(value) is wanted or (wanted is Path and isinstance(value, Path)):
            return value
        if typing.get_origin(wanted) is tuple and isinstance(value, tuple):
            return value
        if wanted is float and type(value) is int:
            return float(value)
    wanted_names = " or ".join(
        getattr(wanted, "__name__", str(wanted)) for wanted in accepted if wanted is not type(None)
    )
    raise UsageError(f"{place} must be of type {wanted_names}, not {value!r}")
