"""GLEU, the score of a single sentence as a reward (Wu et al. 2016, section 5)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TypeAlias

LONGEST = 4
"""Tokens of the longest n-grams."""

Ngrams: TypeAlias = Counter[tuple[int, ...]]


def ngrams(ids: Sequence[int]) -> Ngrams:
    """Return how often each sequence of 1 to 4 tokens occurs."""
    lengths = range(1, min(LONGEST, len(ids)) + 1)
    return Counter(tuple(ids[i : i + n]) for n in lengths for i in range(len(ids) - n + 1))


def gleu(output: Ngrams, target: Ngrams) -> float:
    """Return the smaller of the precision and the recall of n-grams, from 0 to 1; 0 without any n-gram."""
    return (output & target).total() / max(output.total(), target.total(), 1)
