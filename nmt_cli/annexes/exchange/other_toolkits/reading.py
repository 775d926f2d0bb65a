"""The settings in a command line or a file of another toolkit."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

from nmt_cli.annexes.exchange.other_toolkits.flags import answers_of
from nmt_cli.annexes.exchange.other_toolkits.settings import (
    NUMBER,
    SEPARATOR,
    SWITCH,
    Conversion,
    Settings,
)
from nmt_cli.errors import UsageError, shown
from nmt_cli.files.settings import read_settings

Program = dict[str, Any]
PROGRAMS: dict[str, Program] = read_settings(Path(__file__).parent / "programs.toml")
_BRACES = re.compile(r"(.+)\{([^{},]+),([^{},]+)\}(.*)")
_FILES = (".yaml", ".yml")
_OPERATORS = ";&|<>\n"  # of a shell


def read(original: str) -> list[Conversion]:
    """Return the settings of a YAML file, or of each command of a known program in a script.

    Raises:
        UsageError: no program is known, or a command line or file cannot be read.
    """
    if original.endswith(_FILES) and (len(original.split()) == 1 or Path(original).is_file()):
        content = read_settings(Path(original))
        program = _program_of_file(content, original)
        return [Conversion(program, program["words"][0], _settings(content, program), [])]
    devices = _devices(original)
    calls = [_of_words(words, devices) for words in _commands(original)]
    conversions = [call for call in calls if call is not None]
    if conversions:
        # A program without settings may be a path, as in `mkdir marian`.
        return [call for call in conversions if call.given] or conversions[:1]
    known = ", ".join(sorted(program["words"][0] for program in PROGRAMS.values()))
    raise UsageError(f"no known program in {shown(original)}; known are {known}")


def _commands(script: str) -> list[list[str]]:
    """Return the words of each command in a text of a shell, without redirections."""
    script = re.sub(r"^\s*#.*", "", script, flags=re.MULTILINE)
    script = re.sub(r"(?<=\s)\d(?=[<>])", "", script.replace("\\\n", " "))  # of 2>&1
    script = re.sub(r"(?<=\s)(-[a-z])(?=\d)", r"\1 ", script)  # -n0.6
    lexer = shlex.shlex(script, posix=True, punctuation_chars=_OPERATORS)
    lexer.whitespace = " \t\r"
    lexer.whitespace_split = True
    lexer.commenters = ""
    commands: list[list[str]] = [[]]
    try:
        for word in lexer:
            if not word or word.strip(_OPERATORS):
                commands[-1].append(word)
            elif "<" in word or ">" in word:
                next(lexer, "")
            else:
                commands.append([])
    except ValueError as error:
        raise UsageError(f"the command line cannot be read: {error}") from error
    return commands


def _devices(script: str) -> int | None:
    """Return the number of GPUs that a text of a shell names, or None."""
    visible = re.search(r"CUDA_VISIBLE_DEVICES=[\"']?(\d+(?:,\d+)*)\b", script)
    processes = re.search(r"--nproc[-_]per[-_]node[= ](\d+)\b", script)
    if processes:
        return int(processes[1])
    return len(visible[1].split(",")) if visible else None


def _of_words(words: list[str], devices: int | None) -> Conversion | None:
    """Return the settings of a command line and of its files, or None if it calls no program."""
    for position in range(len(words)):
        for program in PROGRAMS.values():
            called = _called(program, words[position : position + 2])
            if not called:
                continue
            given, positional = _flags(program, words[position + 1 :])
            missing = []
            files = [given.pop("config", ""), given.pop("c", "")]
            named = SEPARATOR.join([*files, *positional]).split(SEPARATOR)
            for path in map(Path, filter(None, named)):
                if path.is_file():
                    given = _settings(read_settings(path), program) | given
                elif path.suffix in _FILES and "train" in program["commands"]:
                    raise UsageError(f"{path}: no such file: its settings would be defaults")
                elif path.suffix in _FILES:
                    missing.append(f"{path}: no such file")
            return Conversion(program, called, given, positional, devices, missing=missing)
    return None


def _called(program: Program, words: list[str]) -> str:
    """Return the name by which a path and a word call a program, which may be two words, or ""."""
    path, *rest = words
    command = Path(path).name.removesuffix(")")  # of $(which fairseq-train)
    names = (path, command, " ".join([command, *rest]))
    return next((name for name in program["words"] if name in names), "")


def answers_for(program: Program, command: str) -> dict[str, str]:
    """Return the answers to the settings of a program: flags of `command`, or what to do."""
    answers: dict[str, str] = program.get(command, {})
    return answers_of(command, program["column"]) | answers


def _need_value(program: Program) -> set[str]:
    """Return the settings that are flags of ours with a value."""
    return {
        name
        for command in program["commands"]
        for name, answer in answers_for(program, command).items()
        if answer.startswith("--") and name not in program["implied"]
    }


def _flags(program: Program, words: list[str]) -> tuple[Settings, list[str]]:
    """Return the settings by flag, without dashes, and the other words.

    Raises:
        UsageError: a flag that needs a value has none.
    """
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
    need_value = _need_value(program)
    for name, values in given.items():
        if not values and name in need_value:
            raise UsageError(f"{program['words'][0]}: {name} has no value")
        values += [] if values else [SWITCH]
    return {name: SEPARATOR.join(values) for name, values in given.items()}, positional


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
        elif value is not None:
            settings[plain] = _text(value)
    return settings


def _text(value: Any) -> str:
    if isinstance(value, list):
        return SEPARATOR.join(map(_text, value))
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():  # such as 2e5
        return str(int(value))
    return str(value)
