"""`nmt prepare` in this process."""

from __future__ import annotations

from nmt_cli import registry
from nmt_cli.cli import main

PREPARE = (
    *"prepare --source-lang en --target-lang de".split(),
    *"--subwords character --workers 1".split(),
)
"""The words of a command whose vocabulary is quickly learned."""


def run(arguments: list[str]) -> int:
    """The exit code of `nmt`."""
    registry.discover(homes=("tasks",))
    try:
        main(arguments)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0
    return 0
