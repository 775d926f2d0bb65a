"""The documents keep their promises: links lead somewhere, and every command line uses flags that exist."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import typer

from nmt_cli.cli import application

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(?:#[^)]*)?\)")
COMMANDS = ("prepare", "train", "average", "translate", "score-trees", "score")
OWN_COMPONENTS = {"--momentum", "--nesterov"}
"""Flags of the example in docs/adding-a-component.md, whose own test trains with them."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    targets = [target for target in LINK.findall(page.read_text(encoding="utf-8")) if "://" not in target]
    assert [target for target in targets if not (page.parent / target).exists()] == []


@cache
def flags_of(command: str) -> frozenset[str]:
    group = typer.main.get_command(application([command]))
    parameters = group.commands[command].params  # type: ignore[attr-defined]
    return frozenset(name for parameter in parameters for name in parameter.opts)


def command_lines(text: str) -> Iterator[list[str]]:
    """The words of every `nmt COMMAND ...` in the page's blocks of code, continued lines joined."""
    for block in re.findall(r"^ *```(?:sh|bash|console)?\n(.*?)^ *```", text, re.MULTILINE | re.DOTALL):
        for line in block.replace("\\\n", " ").split("\n"):
            found = re.search(rf"(?:^|[\s/])nmt ((?:{'|'.join(COMMANDS)})\b.*)", line)
            if found:
                yield shlex.split(re.split(r" [|<>] |  ", found[1])[0], comments=True)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_commands_use_flags_that_exist(page: Path) -> None:
    for command, *words in command_lines(page.read_text(encoding="utf-8")):
        given = {word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)}
        assert given - OWN_COMPONENTS <= flags_of(command), f"nmt {command} {' '.join(words)}"


def test_the_pages_name_every_command() -> None:
    seen = {command for page in PAGES for command, *_ in command_lines(page.read_text(encoding="utf-8"))}
    assert seen == set(COMMANDS)
