"""Cleaning of training text. Validation and test text is never cleaned, so that scores are those of the whole set."""

from __future__ import annotations

import hashlib
from array import array
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

# Reasons to drop a pair, in the order in which they are tested: a pair counts under the first that holds.
NUL, EMPTY, TOO_LONG, RATIO = "NUL byte", "empty", "too long", "length ratio"
IDENTICAL, DUPLICATE = "source equals target", "duplicate"

_GROUPS = 16  # of hashes, sorted one after the other to save memory


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
    """Return a hash of 8 bytes."""
    # Lines contain no line feed, so it separates the two unambiguously.
    return hashlib.blake2b(f"{source}\n{target}".encode(), digest_size=8).digest()


class PairHashes:
    """The hashes of all pairs, 8 bytes each, to find duplicates.

    In a corpus of 36 million pairs, two different ones have the same hash with a probability of 1 in 28,000.
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
        group = hashes.view(np.uint8)[::8] % _GROUPS
        for number in range(_GROUPS):
            members = np.flatnonzero(group == number)
            members = members[np.argsort(hashes[members], kind="stable")]  # equal hashes stay in order
            repeated[members[1:]] = hashes[members[1:]] == hashes[members[:-1]]
        return repeated
