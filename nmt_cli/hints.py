"""Unknown flags and settings, and what to use instead. Entry points of nmt.hints know those of
other programs.
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
        if is_value:  # of the flag before it; it may begin with a hyphen
            is_value = False
        elif word == "--":  # only arguments follow
            break
        elif name in known:
            is_switch = getattr(known[name], "is_flag", False)
            is_value = word == name and not is_switch
            if is_switch and following.lower() in ("true", "false"):
                raise UsageError(f"{word} takes no value")
        elif re.match("--?[A-Za-z]", name):
            # -ofile is -o file, but -output is what other programs have for --output.
            is_short = name[:2] in known and _counterpart(command, name, known) is None
            unknown += [] if is_short else [name]
    return unknown


def refuse(beginning: str, unknown: Iterable[str], command: str, known: Collection[str]) -> None:
    """Raise UsageError if there are unknown names, with what to use instead of each: one of the
    `known` or more.
    """
    answers = []
    for name in [name[:60] for name in dict.fromkeys(unknown)][
        :50
    ]:  # a file may have any number, of any length
        answer = _counterpart(command, name, known)
        if answer is None:
            candidates = {
                _plain(candidate): candidate for candidate in known if "." not in candidate
            }
            close = [candidates[candidate] for candidate in near(_plain(name), candidates)]
            answer = f"did you mean {' or '.join(close)}?" if close else "unknown"
        answers.append(f"{name}: {answer}")
    if answers:
        listing = (
            f" {answers[0]}"
            if len(answers) == 1
            else "".join(f"\n  {answer}" for answer in answers)
        )
        raise UsageError(f"{beginning}{listing}\n`nmt {command} --help` lists the flags.")


def _counterpart(command: str, name: str, known: Collection[str]) -> str | None:
    """Return what to use instead of a flag of another program, or of one of ours that is written in
    another way.
    """
    plain = _plain(name)
    tables = entries("nmt.hints")
    answers = [
        (other, table[other][plain]) for table in tables for other in table if plain in table[other]
    ]
    for other, answer in answers:
        if other == command:
            return str(answer)
    if f"--{plain}" in known:
        return f"use --{plain}"
    for other, answer in answers:
        return f"`nmt {other}`: {answer}"
    return None


def _plain(name: str) -> str:
    """Return the name of a flag, or of a setting in a section of a file, as the tables have it."""
    return name.lstrip("-").replace("_", "-").rpartition(".")[2]
