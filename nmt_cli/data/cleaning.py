"""Cleaning of training text: reasons to drop a pair, and duplicates. A task has the rules, its
`rejection`.

Validation and test text that is given is never cleaned, so that scores are those of the whole set.
`held_out` takes it from text that is clean.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

# Reasons to drop a pair, in the order in which they are tested: a pair counts under the first that
# holds.
NUL, EMPTY, TOO_LONG, RATIO = "NUL byte", "empty", "too long", "length ratio"
IDENTICAL, DUPLICATE, TAKEN = "source equals target", "duplicate", "held out"

# What is equal in duplicates.
COMPARED = {"pair": slice(2), "source": slice(1), "target": slice(1, 2)}

SUBWORD_MARKS = re.compile(r"@@(?= |$)|\u2581")  # of other programs, in text

_GROUPS = 16  # of hashes, sorted one after the other to save memory


def pair_hash(source: str, target: str = "") -> bytes:
    """Return a hash of 8 bytes, of a pair or of one text."""
    # Lines contain no line feed, so it separates the two unambiguously.
    return hashlib.blake2b(f"{source}\n{target}".encode(), digest_size=8).digest()


def repeated(numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
    """Return, for each pair in order, given as its `pair_hash`, whether an equal one came before
    it.

    In a corpus of 36 million pairs, two different ones have the same hash with a probability of 1
    in 28,000.
    """
    import numpy as np  # not at the top, as below: help of commands comes sooner without it

    found = np.zeros(len(numbers), dtype=bool)
    group = numbers.view(np.uint8)[::8] % _GROUPS
    for number in range(_GROUPS):
        members = np.flatnonzero(group == number)
        members = members[np.argsort(numbers[members], kind="stable")]  # equal hashes stay in order
        found[members[1:]] = numbers[members[1:]] == numbers[members[:-1]]
    return found


def held_out(
    sources: npt.NDArray[np.uint64], targets: npt.NDArray[np.uint64], count: int
) -> tuple[Any, Any, Any]:
    """Choose `count` pairs for validation and `count` for test, given as the hashes of both sides
    of all pairs.

    Return the numbers of the pairs of both, and for each pair whether it shares a side with one of
    them. The choice has the smallest hashes of sources, so it depends on the text alone and not on
    its order.
    """
    import numpy as np

    chosen = np.unique(sources, return_index=True)[1][: 2 * count]
    shares = np.isin(sources, sources[chosen]) | np.isin(targets, targets[chosen])
    return chosen[:count], chosen[count:], shares
