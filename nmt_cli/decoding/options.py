"""The options of translation: flags of `nmt translate` and keywords of the Python API."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Any

from nmt_cli.config import check_values, fields
from nmt_cli.errors import UsageError, nearest
from nmt_cli.registry import build, component_of, discover, extras, extras_of, group, option
from nmt_cli.task import Task

DTYPES = ("auto", "float32", "bfloat16", "float16", "int8")


@dataclass(frozen=True)
class SearchOptions:
    """Options of beam search. None is the task's default."""

    beam: int | None = option(
        None,
        "Beam size. 1 means greedy search. [default: the task's, 4 for translation]",
        minimum=1,
        maximum=10_000,
    )
    alpha: float | None = option(
        None,
        "Exponent of the length penalty. [default: the task's, 0.6 for translation]",
        minimum=0.0,
    )
    nbest: int = option(
        1,
        "Outputs for each line, best first (with --sample as drawn), "
        "in --format tsv if no other is given.",
        minimum=1,
    )
    min_length: int = option(0, "Minimum number of output tokens.", minimum=0)
    exact_stopping: bool | None = option(
        None,
        "Search on until no hypothesis can beat the outputs, as the paper's authors do. Else a "
        "sentence ends when as many hypotheses as the beam have ended, which is faster. "
        "[default: the task's, off for translation]",
    )
    unknown: bool = False  # allow the unknown word in outputs
    early_termination: bool = True  # end sentences before their limits

    def __post_init__(self) -> None:
        check_values(self)


@dataclass(frozen=True)
class SearchSettings(SearchOptions):
    """Options of beam search, complete. The beam and alpha are the paper's (6.1)."""

    beam: int = 4
    alpha: float = 0.6
    exact_stopping: bool = False
    never_generated: int = 0  # the number of the last ids that outputs do not have
    penalty: Any = None  # a `LengthPenalty` in place of the paper's
    # In place of `beam_search`, called as `run(model, source, requests, settings, constraint)`.
    run: Any = None
    steps: Any = None  # what `run` does, as `Steps`, or None


@dataclass(frozen=True, init=False)
class TranslateOptions:
    """Options of translation.

    Args:
        options: the fields, and by their names the options of the search and of extras:
            `TranslateOptions(beam=8, read_ahead=100)`.

    Raises:
        UsageError: a name is unknown, or a value is out of range or of another type, or does not
            fit another one.
    """

    search: SearchOptions = group("search", SearchOptions)
    batch_tokens: int | None = option(
        None,
        "Source tokens in a batch, padding included. [default: 4096, on a GPU 32768]",
        minimum=1,
    )
    read_ahead: int | None = option(
        None,
        "Lines read and sorted by length at once. [default: 1024, on a single GPU 8192]",
        minimum=1,
    )
    max_source_length: int = option(
        1024, "Maximum source tokens per line. Longer lines are truncated.", minimum=1
    )
    max_length_offset: int | None = option(
        None, "Maximum output length: source tokens plus N. [default: the task's own]", minimum=0
    )
    max_length: int | None = option(
        None, "Maximum output length, where --max-length-offset allows more.", minimum=1
    )
    # The settings of registered extras by name, if one is not at its default.
    extras: dict[str, Any] = extras("around", "encoding", "search", "length_penalty", "constraint")

    def __init__(self, **options: Any) -> None:
        for field in dataclasses.fields(self):
            default = field.default
            if field.default_factory is not MISSING:
                default = field.default_factory()
            object.__setattr__(self, field.name, options.pop(field.name, default))
        parts = self._parts()
        if not options.keys() <= _names(parts):
            discover()
            parts = self._parts()
        for unknown in options.keys() - _names(parts):
            known = _names({**parts, "": self}) - {"extras", *parts}
            raise UsageError(f"there is no option {unknown!r}. {nearest(unknown, known)}")
        for part_name, part in parts.items():
            names = part.__dataclass_fields__.keys() & options.keys()
            chosen = {name: options[name] for name in names}
            parts[part_name] = dataclasses.replace(part, **chosen)
        object.__setattr__(self, "search", parts.pop("search"))
        used = {name: part for name, part in parts.items() if part != type(part)()}
        object.__setattr__(self, "extras", used)
        self._check()

    def _parts(self) -> dict[str, Any]:
        """Return the search's options and the settings of all registered extras, by name."""
        parts: dict[str, Any] = {"search": self.search}
        for extra in extras_of(type(self)):
            parts[extra.name] = self.extras.get(extra.name, extra.config())
        return parts

    def _check(self) -> None:
        for config in (self, *self.extras.values()):
            check_values(config)
        shortest = self.search.min_length
        if self.max_length is not None and shortest > self.max_length:
            raise UsageError(f"--min-length {shortest} is more than --max-length {self.max_length}")

    def get(self, name: str) -> Any:
        """Return the option of this name. It is None if no registered extra has it."""
        for part in (self, *self._parts().values()):
            if name in part.__dataclass_fields__:
                return getattr(part, name)
        return None

    def used(self, kind: str) -> list[Any]:
        """Return the settings of the extras of a kind that are not all at their defaults."""
        return [config for config in self.extras.values() if component_of(config).kind == kind]

    @property
    def files(self) -> list[Path]:
        """The files that extras write beside the output."""
        files = []
        for config in self.extras.values():
            for field, _ in fields(type(config)):
                path = getattr(config, field.name)
                if field.metadata["written"] and path is not None:
                    files.append(Path(path))
        return files

    def replaced(self, given: Mapping[str, Any]) -> TranslateOptions:
        """Return these options with those that are given by name. None means not given.

        Raises: as `TranslateOptions`.
        """
        chosen = {name: value for name, value in given.items() if value is not None}
        options = dataclasses.replace(self, **chosen)
        if options.used("search") != self.used("search"):
            chosen.setdefault("beam", None)  # another search has no use for an earlier beam
            options = dataclasses.replace(self, **chosen)
        return options

    def settings(self, task: Task) -> SearchSettings:
        """Return the options of the search, with the defaults of `task`.

        Raises:
            UsageError: the beam has no place for `nbest` outputs.
        """
        search = self.search
        values = vars(search) | {"never_generated": task.never_generated}
        for name in ("beam", "alpha", "exact_stopping"):
            if values[name] is None:
                values[name] = getattr(task, f"default_{name}")
        settings = SearchSettings(**values)
        for config in self.used("length_penalty"):
            penalty = build(config, alpha=settings.alpha)
            settings = dataclasses.replace(settings, penalty=penalty)
        for config in self.used("search"):
            settings = build(config, settings=settings, options=search)
        if settings.nbest > settings.beam and settings.run is None:
            raise UsageError(
                f"--nbest {search.nbest} needs a beam of at least {search.nbest}, "
                f"not {settings.beam}"
            )
        return settings


def _names(parts: Mapping[str, Any]) -> set[str]:
    return {name for part in parts.values() for name in part.__dataclass_fields__}
