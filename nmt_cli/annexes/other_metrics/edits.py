"""Exact match, top-k accuracy, and error rates by edit distance (Levenshtein 1966).

Lines are compared after Unicode's NFC and without white space at their ends, so two encodings of
one text are equal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from nmt_cli.data.unicode import comparable
from nmt_cli.metrics.bleu import read_measures

Lines = list[str]


def top(hypotheses: Lines, references: Lines, sources: Lines, k: int) -> list[float]:
    """Return 100 for each line whose reference is among the first `k` of its hypotheses, which line
    feeds separate.
    """
    return [
        100.0 * (comparable(reference) in map(comparable, outputs.split("\n")[:k]))
        for outputs, reference in zip(hypotheses, references, strict=True)
    ]


def edits(
    hypotheses: Lines, references: Lines, sources: Lines, units: str
) -> list[tuple[float, int]]:
    """Return 100 times the edits in `units`, and the units of the reference, of each line."""
    from rapidfuzz.distance import Levenshtein

    pairs = zip(
        *([UNITS[units](comparable(line)) for line in side] for side in (hypotheses, references)),
        strict=True,
    )
    return [
        (100.0 * Levenshtein.distance(line, reference), len(reference)) for line, reference in pairs
    ]


UNITS: dict[str, Callable[[str], Sequence[str]]] = {"words": str.split, "characters": str}
MEASURES = list(read_measures(__file__))
