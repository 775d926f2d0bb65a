"""What a task may offer beside what every task does: the search and `nmt translate` look for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class TaskWithSearch(Protocol):
    """A task that the paper searches in another way than translation."""

    @property
    def search_defaults(self) -> Mapping[str, float]:
        """Options of the search, `beam` and `alpha`, that hold unless the user chooses others."""
        ...


@runtime_checkable
class RepairingTask(Protocol):
    """A task whose outputs have a form, which it gives them when a model does not."""

    def repaired(self, ids: Sequence[int], source: str) -> tuple[str, Mapping[str, int]]:
        """The output line, as `decode_target` gives it, and how many repairs of each kind it took."""
        ...


@runtime_checkable
class DrawingTask(Protocol):
    """A task whose outputs can be drawn on a terminal."""

    def drawing(self, text: str) -> Any:
        """An output line as something that rich prints."""
        ...
