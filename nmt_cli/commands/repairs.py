"""How many outputs of a task that gives its outputs their form had to be repaired, and how."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping


class RepairCount:
    """Counts over outputs, every one of the n best."""

    def __init__(self) -> None:
        self.outputs = 0
        self.repaired = 0  # outputs that needed it
        self.kinds: Counter[str] = Counter()

    def add(self, outputs: Iterable[Mapping[str, int]]) -> None:
        """Notes the repairs of each output by their kinds, none where it was well-formed."""
        for repairs in outputs:
            self.outputs += 1
            self.repaired += bool(repairs)
            self.kinds.update(repairs)

    def __str__(self) -> str:
        kinds = ", ".join(f"{kind} {count:,}" for kind, count in self.kinds.most_common())
        return f"repaired {self.repaired:,} of {self.outputs:,} outputs{f': {kinds}' if kinds else ''}"
