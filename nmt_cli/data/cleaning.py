"""Cleaning of training text: which pairs are dropped, and which also occur in validation or test text.

Validation and test text is never cleaned, so that scores are those of the whole set.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

NUL, EMPTY, TOO_LONG, RATIO, IDENTICAL, DUPLICATE = (
    "NUL byte",
    "empty",
    "too long",
    "length ratio",
    "source equals target",
    "duplicate",
)
"""Reasons to drop a pair, in the order in which they are tested; a pair counts under the first that holds."""

_PARTS = 16  # of the hashes, sorted one after the other to save memory


@dataclass(frozen=True)
class Limits:
    """The limits of `rejection`; 0 means no limit."""

    max_words: int = 250  # on either side, separated by white space
    max_characters: int = 2500  # on either side; also covers scripts without spaces
    max_ratio: float = 5.0  # longer side to shorter side
    ratio_in_words: bool = False  # in words instead of characters
    allow_identical: bool = True


def rejection(source: str, target: str, limits: Limits) -> str | None:
    """Return the reason to drop a pair of raw lines from the training text, or None."""
    if "\0" in source or "\0" in target:
        return NUL
    texts = source.strip(), target.strip()
    if not all(texts):
        return EMPTY
    if limits.max_characters and max(len(source), len(target)) > limits.max_characters:
        return TOO_LONG
    lengths = (len(texts[0]), len(texts[1]))
    # A line of n words has at least 2 n - 1 characters, so most lines need not be split.
    if limits.ratio_in_words or 0 < 2 * limits.max_words < max(lengths):
        words = (len(source.split()), len(target.split()))
        if limits.max_words and max(words) > limits.max_words:
            return TOO_LONG
        if limits.ratio_in_words:
            lengths = words
    if limits.max_ratio and max(lengths) > limits.max_ratio * min(lengths):
        return RATIO
    if not limits.allow_identical and texts[0] == texts[1]:
        return IDENTICAL
    return None


def pair_hash(source: str, target: str) -> bytes:
    """Return 8 bytes that two different pairs have in common with a probability of 2^-64."""
    # Lines contain no line feed, so it separates the two unambiguously.
    return hashlib.blake2b(f"{source}\n{target}".encode(), digest_size=8).digest()


class PairHashes:
    """The hashes of all pairs, 8 bytes each, to find exact duplicates.

    Finding them takes another 6 bytes per pair. Two different pairs have the same hash with a probability of
    n^2 / 2^65: 1 in 28,000 for a corpus of 36 million pairs.
    """

    def __init__(self) -> None:
        self._hashes = array("Q")

    def add(self, hashes: bytes) -> None:
        """Add the hashes of the next pairs, one after the other."""
        self._hashes.frombytes(hashes)

    def repeated(self) -> npt.NDArray[np.bool_]:
        """Return, for each pair in order, whether an equal pair came before it."""
        hashes = np.frombuffer(self._hashes, dtype=np.uint64)
        repeated = np.zeros(len(hashes), dtype=bool)
        part = hashes.view(np.uint8)[::8] % _PARTS
        for number in range(_PARTS):
            members = np.flatnonzero(part == number)
            members = members[np.argsort(hashes[members], kind="stable")]  # equal hashes stay in order
            repeated[members[1:]] = hashes[members[1:]] == hashes[members[:-1]]
        return repeated


class Overlap:
    """Finds the lines of validation and test text that also occur in training text."""

    def __init__(self) -> None:
        self._watched: dict[str, list[tuple[str, str, str]]] = {}  # split: source, target and place
        self._sources: set[str] = set()
        self._seen: set[tuple[str, str]] = set()

    def watch(self, split: str, source: str, target: str, place: str) -> None:
        """Add a pair of validation or test text."""
        self._watched.setdefault(split, []).append((source, target, place))
        self._sources.add(source)

    def of(self, pairs: Iterable[tuple[str, str]]) -> set[tuple[str, str]]:
        """Return those training pairs whose source is watched."""
        return {pair for pair in pairs if pair[0] in self._sources}

    def add(self, pairs: set[tuple[str, str]]) -> None:
        """Add training pairs that `of` returned."""
        self._seen |= pairs

    def warning(self, split: str) -> str | None:
        """Return a message about the lines of `split` that occur in the training text, or None if there are none."""
        lines = self._watched[split]
        sources = {source for source, _ in self._seen}
        places = [place for source, _, place in lines if source in sources]
        if not places:
            return None
        pairs = sum((source, target) in self._seen for source, target, _ in lines)
        return (
            f"{len(places):,} of {len(lines):,} {split} source lines are also training text, {pairs:,} with the "
            f"same target; first: {places[0]}"
        )
