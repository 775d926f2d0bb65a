"""The options of a translation: what the user chose, over what the task says, over the defaults of translation."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from nmt_cli.decoding.abilities import TaskWithSearch
from nmt_cli.decoding.translator import TranslateOptions
from nmt_cli.errors import UsageError
from nmt_cli.interfaces import Task

_SEARCH = ("beam", "alpha", "nbest", "min_length", "unknown")


def task_options(task: Task) -> TranslateOptions:
    """The options of a task for which nothing was chosen."""
    defaults: Mapping[str, Any] = task.search_defaults if isinstance(task, TaskWithSearch) else {}
    return with_choices(TranslateOptions(), defaults)


def with_choices(defaults: TranslateOptions, choices: Mapping[str, Any]) -> TranslateOptions:
    """`defaults` with what is chosen instead: fields of `TranslateOptions`, and of its search.

    Raises:
        UsageError: there is no such option, or a value is out of its range.
    """
    known = {field.name for field in dataclasses.fields(TranslateOptions)} - {"search"} | set(_SEARCH)
    for name in choices:
        if name not in known:
            raise UsageError(f"there is no option {name!r}; known: {', '.join(sorted(known))}")
    search: dict[str, Any] = {name: value for name, value in choices.items() if name in _SEARCH}
    rest: dict[str, Any] = {name: value for name, value in choices.items() if name not in _SEARCH}
    return dataclasses.replace(defaults, search=dataclasses.replace(defaults.search, **search), **rest)
