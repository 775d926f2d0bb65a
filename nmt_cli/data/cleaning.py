"""Cleaning of training text: reasons to drop a pair, and duplicates.

The rules are a task's `rejection`.

Validation and test text that is given is never cleaned, so that scores are of the whole set.
`held_out` chooses it from text that is clean.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

# Reasons to drop a pair, in the order of the tests: a pair counts under the first that holds.
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
    """Return for each `pair_hash` whether an equal one came before it: [pairs].

    In a corpus of 36 million pairs, two different pairs have the same hash with a probability of 1
    in 28,000.
    """
    import numpy as np  # not at the top, as below: help of commands comes sooner without it

    is_repeated = np.zeros(len(numbers), dtype=bool)
    group = numbers.view(np.uint8)[::8] % _GROUPS
    for number in range(_GROUPS):
        members = np.flatnonzero(group == number)
        members = members[np.argsort(numbers[members], kind="stable")]  # equal hashes stay in order
        is_repeated[members[1:]] = numbers[members[1:]] == numbers[members[:-1]]
    return is_repeated


def held_out(
    sources: npt.NDArray[np.uint64], targets: npt.NDArray[np.uint64], count: int
) -> tuple[Any, Any, Any]:
    """Choose `count` pairs for validation and `count` pairs for test.

    The choice has the smallest hashes of sources, so it depends on the text alone and not on its
    order.

    Args:
        sources, targets: the hashes of both sides of all pairs, [pairs].

    Returns:
        The numbers of the pairs for validation and for test, and [pairs] whether a pair shares a
        side with one of them.
    """
    import numpy as np

    _, smallest_first = np.unique(sources, return_index=True)
    chosen = smallest_first[: 2 * count]
    shares = np.isin(sources, sources[chosen]) | np.isin(targets, targets[chosen])
    return chosen[:count], chosen[count:], shares
