"""The options of translation: flags of `nmt translate` and keywords of the Python API."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from nmt_cli.config import check_values
from nmt_cli.errors import UsageError, nearest
from nmt_cli.registry import option


@dataclass(frozen=True)
class SearchOptions:
    """Options of beam search; the defaults are the paper's (section 6.1)."""

    beam: int = option(4, "Beam size; 1 means greedy search.", minimum=1, maximum=10_000)
    alpha: float = option(0.6, "Exponent of the length penalty.", minimum=0.0)
    nbest: int = option(1, "Outputs for each line, best first, in --format tsv if no other is given.", minimum=1)
    min_length: int = option(0, "Minimum number of output tokens.", minimum=0)
    unknown: bool = False  # allow the unknown word in outputs
    early_termination: bool = True  # stop a search early; results do not change

    def __post_init__(self) -> None:
        check_values(self)
        if self.nbest > self.beam:
            raise UsageError(f"--nbest {self.nbest} needs a beam of at least {self.nbest}, not {self.beam}")


@dataclass(frozen=True)
class TranslateOptions:
    """Options of translation."""

    search: SearchOptions = field(default_factory=SearchOptions)
    batch_tokens: int = option(4096, "Source tokens in a batch, padding included.", minimum=1)
    read_ahead: int = option(1024, "Lines read and sorted by length at once.", minimum=1)
    max_source_length: int = option(1024, "Source tokens translated of a line; the rest is left out.", minimum=1)
    max_length_offset: int | None = option(
        None, "Maximum output length: source tokens plus N. [default: the task's own]", minimum=0
    )
    constrained: bool = option(False, "Allow only well-formed outputs, for tasks that define them.")

    def __post_init__(self) -> None:
        check_values(self)


def with_options(defaults: TranslateOptions, chosen: Mapping[str, Any]) -> TranslateOptions:
    """Return `defaults` with the options `chosen` by name, of `TranslateOptions` or `SearchOptions`.

    Raises:
        UsageError: an option is unknown, or its value is out of range.
    """
    of_search = {field.name for field in dataclasses.fields(SearchOptions)}
    known = of_search | {field.name for field in dataclasses.fields(TranslateOptions)} - {"search"}
    if unknown := sorted(chosen.keys() - known):
        raise UsageError(f"unknown option {unknown[0]!r}. {nearest(unknown[0], known)}")
    search = {name: value for name, value in chosen.items() if name in of_search}
    rest = {name: value for name, value in chosen.items() if name not in of_search}
    return dataclasses.replace(defaults, search=dataclasses.replace(defaults.search, **search), **rest)
