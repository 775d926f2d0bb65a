"""The settings in a command line or a file of another toolkit."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

from nmt_cli.annexes.exchange.other_toolkits.flags import answers_of
from nmt_cli.annexes.exchange.other_toolkits.settings import (
    NUMBER,
    SWITCH,
    Conversion,
    Settings,
)
from nmt_cli.errors import UsageError, shown
from nmt_cli.files.settings import read_settings

Program = dict[str, Any]
PROGRAMS: dict[str, Program] = read_settings(Path(__file__).parent / "programs.toml")
# Of a shell, after the command.
_ENDS = re.compile(r"\d?>.*|&.*|\||\|\||;|<.*|2>&1")
_BRACES = re.compile(r"(.+)\{([^{},]+),([^{},]+)\}(.*)")
_FILES = (".yaml", ".yml")


def read(original: str) -> Conversion:
    """Return the settings of a command line or of a YAML file.

    Raises:
        UsageError: the program is not known, or the command line or file cannot be read.
    """
    if original.endswith(_FILES) and (len(original.split()) == 1 or Path(original).is_file()):
        content = read_settings(Path(original))
        program = _program_of_file(content, original)
        return Conversion(program, _settings(content, program), [])
    return _of_words(_words(original))


def _words(original: str) -> list[str]:
    try:
        words = shlex.split(original.replace("\\\n", " "))
    except ValueError as error:
        raise UsageError(f"the command line cannot be read: {error}") from error
    for position, word in enumerate(words):
        if _ENDS.fullmatch(word):
            return words[:position]
    return words


def _of_words(words: list[str]) -> Conversion:
    """Return the settings of a command line, and of the files that it names."""
    devices = None
    for position, word in enumerate(words):
        if word.startswith("CUDA_VISIBLE_DEVICES="):
            devices = len(word.split(","))
        for program in PROGRAMS.values():
            if not _calls(program, words[position : position + 2]):
                continue
            given, positional = _flags(program, words[position + 1 :])
            missing = []
            named = " ".join([given.pop("config", ""), given.pop("c", ""), *positional])
            for path in map(Path, named.split()):
                if path.is_file():
                    given = _settings(read_settings(path), program) | given
                elif path.suffix in _FILES and "train" in program["commands"]:
                    raise UsageError(f"{path}: no such file: its settings would be defaults")
                elif path.suffix in _FILES:
                    missing.append(f"{path}: no such file")
            return Conversion(program, given, positional, devices, missing=missing)
    known = ", ".join(sorted(program["words"][0] for program in PROGRAMS.values()))
    raise UsageError(f"no known program in {shown(' '.join(words))}; known are {known}")


def _calls(program: Program, words: list[str]) -> bool:
    """Return whether a path and a word call a program, whose name may be two words."""
    path, *rest = words
    command = Path(path).name
    return any(name in (path, command, " ".join([command, *rest])) for name in program["words"])


def answers_for(program: Program, command: str) -> dict[str, str]:
    """Return the answers to the settings of a program: flags of `command`, or what to do."""
    answers: dict[str, str] = program.get(command, {})
    return answers_of(command, program["column"]) | answers


def _answered(program: Program) -> set[str]:
    """Return the settings that have an answer."""
    return {name for command in program["commands"] for name in answers_for(program, command)}


def _flags(program: Program, words: list[str]) -> tuple[Settings, list[str]]:
    """Return the settings by flag, without dashes, and the other words.

    Raises:
        UsageError: a flag that needs a value has none.
    """
    answered = _answered(program)
    switches = program["switches"].split()
    given: dict[str, list[str]] = {}
    positional: list[str] = []
    values = positional
    name = ""
    for word in words:
        if word in ("true", "false") and values is positional and name in switches:
            given[name] = [word]
        elif not word.startswith("-") or NUMBER.match(word) or word == "-":
            values += _expanded(word)
            # A second value belongs to a list; in fairseq it is an argument.
            if program["column"] == "fairseq":
                values = positional
        else:
            name, equals, value = word.lstrip("-").partition("=")
            name = program.get("short", {}).get(name, name.replace("_", "-"))
            values = given[name] = [value] if equals else []
            if name in switches and not equals:
                values.append(SWITCH)
            if values:
                values = positional
    for name, values in given.items():
        if not values:
            implied = program["implied"].get(name)
            if implied is None and name in answered:
                raise UsageError(f"{program['words'][0]}: {name} has no value")
            values.append(implied or SWITCH)
    return {name: " ".join(values) for name, values in given.items()}, positional


def _expanded(word: str) -> list[str]:
    """Return the words of a shell's braces, as in train.{en,de}."""
    braces = _BRACES.fullmatch(word)
    return [braces.expand(r"\1\2\4"), braces.expand(r"\1\3\4")] if braces else [word]


def _program_of_file(content: dict[str, Any], path: str) -> Program:
    for program in PROGRAMS.values():
        if any(content.keys() >= set(group.split()) for group in program.get("keys", [])):
            return program
    raise UsageError(
        f"{path}: not a configuration of Marian, JoeyNMT, OpenNMT-py or eole that is known"
    )


def _settings(content: dict[str, Any], program: Program) -> Settings:
    """Return the settings of a file by their names, with the names of sections before them."""
    settings: Settings = {}
    for name, value in content.items():
        plain = str(name).replace("_", "-")
        if isinstance(value, dict):
            prefix = "" if name in program.get("sections", []) else f"{plain}."
            for inner, text in _settings(value, program).items():
                settings[prefix + inner] = text
        elif isinstance(value, list):
            settings[plain] = " ".join(map(str, value))
        elif isinstance(value, bool):
            settings[plain] = str(value).lower()
        elif value is not None:
            settings[plain] = str(value)
    return settings
