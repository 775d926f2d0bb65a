"""`nmt prepare` in this process."""

from __future__ import annotations

from nmt_cli import registry
from nmt_cli.cli import main


def run(arguments: list[str]) -> int:
    """The exit code of `nmt`."""
    registry.discover(homes=("tasks",))
    try:
        main(arguments)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0
    return 0
