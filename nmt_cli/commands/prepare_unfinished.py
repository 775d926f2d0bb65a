"""The finished work of an interrupted `nmt prepare`, from which the same command continues."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nmt_cli.errors import DataError
from nmt_cli.files import durable
from nmt_cli.files.text import read_object
from nmt_cli.streams import say

_STATE = "unfinished.json"
KEPT = "kept"  # the file with a byte for each training pair: whether cleaning keeps it


class Unfinished:
    """The finished work in the directory that is being written, and the identity of the command.

    Args:
        identity: returns what the result depends on, as JSON.
    """

    def __init__(self, identity: Callable[[], Any]) -> None:
        self.identity = identity
        self._directory = Path()
        self.state: dict[str, Any] = {}  # by stage, what is recorded of it

    def found(self, directory: Path) -> bool:
        """Return whether an interrupted process with the same identity left finished work in `directory`."""
        self._directory = directory
        try:
            content = read_object(directory / _STATE, DataError, "")
            identity, state = content["identity"], content["state"]
        except (DataError, KeyError):
            return False
        if identity != json.loads(json.dumps(self.identity(), default=str)):
            say("starting anew: the text, the flags or the version have changed since the interrupted command")
            return False
        self.state = state
        return True

    def save(self, **stage: Any) -> None:
        """Record a stage, when its files are on disk."""
        durable.flush_all(self._directory)
        self.state.update(stage)
        content = {"identity": self.identity(), "state": self.state}
        durable.write_text(self._directory / _STATE, json.dumps(content, default=str))

    def remove(self) -> None:
        """Delete the records: the work is finished."""
        for name in (_STATE, KEPT):
            (self._directory / name).unlink(missing_ok=True)
