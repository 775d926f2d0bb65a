"""Unknown flags and settings, and the names to use instead.

Entry points of nmt.hints know the names of other programs.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from nmt_cli.errors import UsageError, near
from nmt_cli.registry import entries


def unknown_flags(command: str, words: Sequence[str], known: Mapping[str, Any]) -> list[str]:
    """Return the flags among the words of a command line that are not in `known`.

    Raises:
        UsageError: a boolean flag has a value.
    """
    unknown = []
    is_value = False
    for word, following in itertools.pairwise([*words, ""]):
        name = word.partition("=")[0]
        if is_value:  # of the flag before it, which may begin with a hyphen
            is_value = False
        elif word == "--":  # only arguments follow
            break
        elif name in known:
            is_switch = getattr(known[name], "is_flag", False)
            is_value = word == name and not is_switch
            if is_switch and following.lower() in ("true", "false"):
                raise UsageError(f"{word} takes no value")
        elif re.match("--?[A-Za-z]", name):
            # -ofile is -o file, but -output is a flag of other programs, for --output.
            is_short = name[:2] in known and _counterpart(command, name, known) is None
            if not is_short:
                unknown.append(name)
    return unknown


def refuse(beginning: str, unknown: Iterable[str], command: str, known: Collection[str]) -> None:
    """Raise UsageError if there are unknown names, with the names to use instead."""
    candidates = {_name_in_tables(name): name for name in known if "." not in name}
    answers = []
    # A file may have any number of names, of any length.
    for name in list(dict.fromkeys(unknown))[:50]:
        name = name[:60]
        answer = _counterpart(command, name, known)
        if answer is None:
            similar = near(_name_in_tables(name), candidates)
            answer = "unknown"
            if similar:
                answer = f"did you mean {' or '.join(candidates[other] for other in similar)}?"
        answers.append(f"{name}: {answer}")
    if not answers:
        return
    listing = f" {answers[0]}"
    if len(answers) > 1:
        listing = "".join(f"\n  {answer}" for answer in answers)
    raise UsageError(f"{beginning}{listing}\n`nmt {command} --help` lists the flags.")


def _counterpart(command: str, name: str, known: Collection[str]) -> str | None:
    """Return advice about a flag of another program, or a flag of ours in another spelling."""
    name = _name_in_tables(name)
    answers: dict[str, str] = {}  # by our command
    for table in entries("nmt.hints"):
        for other, flags in table.items():
            if name in flags:
                answers.setdefault(other, flags[name])
    if command in answers:
        return answers[command]
    if f"--{name}" in known:
        return f"use --{name}"
    for other, answer in answers.items():
        return f"`nmt {other}`: {answer}"
    return None


def _name_in_tables(name: str) -> str:
    """Return the name of a flag, or of a setting in a section of a file, as the tables have it."""
    return name.lstrip("-").replace("_", "-").rpartition(".")[2]
