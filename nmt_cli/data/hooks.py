"""What `nmt prepare` asks of a task, besides what every task offers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import Any, Protocol

from nmt_cli.files.text import Example, nobody
from nmt_cli.interfaces import Task


class Preparable(Task, Protocol):
    """A task that `nmt prepare` can make data for; it knows nothing else of a task.

    `registry.build(config)` makes one without vocabularies, and the hooks are used in the order below. The task is
    copied to worker processes, so it must be picklable. A registered task is a class, whose `load` gives one with
    vocabularies.
    """

    def files(self, prefix: str) -> list[Path]:
        """The input files of a prefix, for fingerprints, sizes and early errors; raises if one is missing."""
        ...

    def read(self, prefix: str, consumed: Callable[[int], None] = nobody) -> Iterator[Example]:
        """The raw pairs of a prefix, streamed. Called several times; must give the same every time.

        Args:
            consumed: to be told now and then of bytes read from `files(prefix)`.
        """
        ...

    def rejection(self, example: Example) -> str | None:
        """Why training leaves the pair out, in a few words to count under, or None. Cheap: called for each pair."""
        ...

    @property
    def sample_pairs(self) -> int:
        """How many pairs `learn` needs at most."""
        ...

    def normalise(self, example: Example) -> tuple[str, str]:
        """The pair as the vocabularies see it. May be slow: runs in worker processes."""
        ...

    def learn(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Learns the vocabularies; `pairs` can be iterated again and again, each time streamed, and is not empty."""
        ...

    def adopt(self, saved: Any, chosen: Collection[str]) -> None:
        """Instead of `learn`: takes over the vocabularies of a loaded task of the same class, or refuses, where that
        contradicts one of the settings `chosen` by the user.
        """
        ...

    def describe(self) -> dict[str, Any]:
        """What the manifest says of the task: settings, library versions, fingerprints of the vocabularies."""
        ...
