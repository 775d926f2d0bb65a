from __future__ import annotations

import re
from typing import Any

import pytest
import typer

from nmt_cli.cli import application
from nmt_cli.other_toolkits.flags import HINTS


@pytest.mark.parametrize("command", HINTS)
def test_the_flags_offered_for_those_of_other_toolkits_exist(command: str) -> None:
    known, other = ({name for param in parameters(each) for name in param.opts} for each in (command, "prepare"))
    for foreign, ours in HINTS[command].items():
        offered = set(re.findall(r"--[a-z][a-z0-9-]+", re.sub(r"`torchrun [^`]*`", "", ours)))
        assert offered <= (other if "nmt prepare" in ours else known)
        assert f"--{foreign}" not in known


def parameters(*words: str) -> list[Any]:
    """Return the arguments and flags of the command that `words` call, hidden ones too."""
    found: list[Any] = typer.main.get_command(application(words)).commands[words[0]].params  # type: ignore[attr-defined]
    return found
