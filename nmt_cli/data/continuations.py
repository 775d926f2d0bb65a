"""The pieces of a vocabulary with which a line can go on where the next letters are given."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any


class Continuations:
    """Find pieces by their letters.

    Args:
        texts: the text of each id; ids whose text is empty are never found.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = texts
        self._ids = {text: i for i, text in enumerate(texts) if text}
        self._sorted = sorted(self._ids)
        self._longest = max(map(len, self._sorted), default=0)
        self.of = lru_cache(1024)(self._of)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._texts,)

    def _of(self, rest: str) -> Mapping[int, str]:
        """Return the ids that may come next where the text `rest` must follow, each with what then is left of `rest`.

        A piece that is only the beginning of `rest` is left out if no pieces spell what is left. No ids: no sequence
        of pieces begins with `rest`.
        """
        left = self._spelled(rest)
        found = {i: rest[size:] for size, i in self._beginnings(rest) if left[size]}
        return found | {self._ids[text]: "" for text in self._starting_with(rest)}

    def _spelled(self, rest: str) -> list[bool]:
        """For each position of `rest`, whether pieces can spell what begins there; the last may go on beyond it."""
        spelled = [True] * (len(rest) + 1)
        for start in reversed(range(len(rest))):
            tail = rest[start:]
            spelled[start] = any(spelled[start + size] for size, _ in self._beginnings(tail)) or any(
                True for _ in self._starting_with(tail)
            )
        return spelled

    def _beginnings(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield the length and id of each piece that `text` begins with."""
        for size in range(1, min(len(text), self._longest) + 1):
            if (i := self._ids.get(text[:size])) is not None:
                yield size, i

    def _starting_with(self, text: str) -> Iterator[str]:
        """Yield the pieces that begin with `text`."""
        for place in range(bisect_left(self._sorted, text), len(self._sorted)):
            if not self._sorted[place].startswith(text):
                return
            yield self._sorted[place]
