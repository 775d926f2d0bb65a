"""Exact match, top-k accuracy, and error rates by edit distance (Levenshtein 1966).

Lines are compared after Unicode's NFC and without white space at their ends, so two encodings of one text are equal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from nmt_cli.data.unicode import comparable
from nmt_cli.metrics.bleu import Measure

Lines = list[str]


def top(hypotheses: Lines, references: Lines, sources: Lines, k: int) -> list[float]:
    """Return 100 for each line whose reference is among the first `k` of its hypotheses, which line feeds separate."""
    return [
        100.0 * (comparable(reference) in map(comparable, outputs.split("\n")[:k]))
        for outputs, reference in zip(hypotheses, references, strict=True)
    ]


def edits(
    hypotheses: Lines, references: Lines, sources: Lines, units: Callable[[str], Sequence[str]]
) -> list[tuple[float, int]]:
    """Return 100 times the edits in `units`, and the units of the reference, of each line."""
    from rapidfuzz.distance import Levenshtein

    pairs = zip(*([units(comparable(line)) for line in side] for side in (hypotheses, references)), strict=True)
    return [(100.0 * Levenshtein.distance(line, reference), len(reference)) for line, reference in pairs]


_TOP, _EDITS, _NFC = f"{__name__}:top", f"{__name__}:edits", {"norm": "nfc"}
_PER = "Phone error rate, of phones separated by spaces: the word error rate"
_TOP_K = "Percentage of references among the first {} outputs"
MEASURES = [
    Measure("exact", "Percentage of lines that equal the reference", _TOP, {"k": 1}, signature=_NFC),
    Measure("wer", "Word error rate", _EDITS, {"units": str.split}, signature=_NFC),
    Measure("per", _PER, _EDITS, {"units": str.split}, signature=_NFC),
    Measure("cer", "Character error rate, of code points with spaces", _EDITS, {"units": str}, signature=_NFC),
    *(Measure(f"top-{k}", _TOP_K.format(k), _TOP, {"k": k}, signature=_NFC, nbest=True) for k in (1, 3, 5, 10)),
]
