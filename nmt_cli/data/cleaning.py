"""Which sentence pairs a model does not learn from, and why.

Only training text is cleaned: validation and test text keeps every line, or it would be another test set.
"""

from __future__ import annotations

import hashlib
from array import array
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
"""The reasons to drop a pair, in the order in which they are looked for: a pair counts under the first that holds."""


_PARTS = 16  # sorted one after the other, which needs a sixteenth of the memory


@dataclass(frozen=True)
class Limits:
    """What `rejection` allows; 0 switches a limit off."""

    max_words: int = 250  # on either side, between white space
    max_characters: int = 2500  # on either side: scripts without spaces, and lines of junk
    max_ratio: float = 5.0  # longer side : shorter side
    ratio_in_words: bool = False  # otherwise in characters, which compounds and scripts without spaces do not upset
    allow_identical: bool = True


def rejection(source: str, target: str, limits: Limits) -> str | None:
    """Why the pair is unfit to learn from, or None if it is fit. Looks at the raw text, before any normalisation."""
    if "\0" in source or "\0" in target:
        return NUL
    if not source.strip() or not target.strip():
        return EMPTY
    if limits.max_characters and max(len(source), len(target)) > limits.max_characters:
        return TOO_LONG
    words = (len(source.split()), len(target.split()))
    if limits.max_words and max(words) > limits.max_words:
        return TOO_LONG
    lengths = words if limits.ratio_in_words else (len(source.strip()), len(target.strip()))
    if limits.max_ratio and max(lengths) > limits.max_ratio * min(lengths):
        return RATIO
    if not limits.allow_identical and source.strip() == target.strip():
        return IDENTICAL
    return None


def pair_hash(source: str, target: str) -> int:
    """64 bits that stand for the pair, the same in every process and on every machine."""
    # Lines hold no line feed, so it separates the two without ambiguity.
    digest = hashlib.blake2b(f"{source}\n{target}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")


class PairHashes:
    """The hashes of all pairs seen, 8 bytes each, to find exact duplicates among any number of pairs.

    A set of Python integers would take about ten times as much. Finding the duplicates takes another 6 bytes a pair for
    a moment. Two different pairs get the same hash with a probability of n^2 / 2^65: 1 in 28,000 that it happens even
    once among 36 million pairs.
    """

    def __init__(self) -> None:
        self._hashes = array("Q")

    def __len__(self) -> int:
        return len(self._hashes)

    def add(self, source: str, target: str) -> None:
        """Notes the next pair."""
        self._hashes.append(pair_hash(source, target))

    def repeated(self) -> npt.NDArray[np.bool_]:
        """For each pair, in order, whether an equal one came before it."""
        hashes = np.frombuffer(self._hashes, dtype=np.uint64)
        repeated = np.zeros(len(hashes), dtype=bool)
        part = hashes.view(np.uint8)[::8] % _PARTS
        for number in range(_PARTS):
            members = np.flatnonzero(part == number)
            repeated[members[_repeated(hashes[members])]] = True
        return repeated


def _repeated(hashes: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
    order = np.argsort(hashes, kind="stable")  # equal ones stay in the order in which they came
    in_order = hashes[order]
    repeated = np.zeros(len(hashes), dtype=bool)
    repeated[order[1:]] = in_order[1:] == in_order[:-1]
    return repeated
