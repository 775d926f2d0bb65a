"""Observers of a run, such as a log for another program (`nmt train --tensorboard`).

An observer is registered with a frozen dataclass, whose fields are flags of `nmt train`. It is used if one of them is
not at its default. Its methods are called on all ranks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class Observer:
    """Does nothing: a subclass has the methods that it needs.

    Args:
        config: an instance of the dataclass that it is registered with.
        run: the `Run`, to read. Its weights are there, its directory is not.

    Raises:
        UsageError: it cannot be used in this run.
    """

    def __init__(self, config: Any, run: Any) -> None:
        self.config, self.run = config, run

    def started(self) -> None:
        """Begin, before the first update here. A resumed run has what it was saved with, and no later metrics."""

    def logged(self, record: Mapping[str, Any]) -> None:
        """Take a line of metrics.jsonl."""
