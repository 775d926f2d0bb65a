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
    """Return 100 for a line whose reference is among the first `k` of its outputs, and else 0.

    Line feeds separate the outputs.
    """
    scores = []
    for lines, reference in zip(hypotheses, references, strict=True):
        outputs = [comparable(output) for output in lines.split("\n")[:k]]
        scores.append(100.0 if comparable(reference) in outputs else 0.0)
    return scores


def edits(
    hypotheses: Lines, references: Lines, sources: Lines, units: str
) -> list[tuple[float, int]]:
    """Return of each line 100 times the edits in `units`, and the units of the reference."""
    from rapidfuzz.distance import Levenshtein

    split = UNITS[units]
    rates = []
    for line, reference in zip(hypotheses, references, strict=True):
        expected = split(comparable(reference))
        distance = Levenshtein.distance(split(comparable(line)), expected)
        rates.append((100.0 * distance, len(expected)))
    return rates


UNITS: dict[str, Callable[[str], Sequence[str]]] = {"words": str.split, "characters": str}
MEASURES = list(read_measures(__file__))
