"""Minimum Bayes risk (Kumar and Byrne 2004) by sacreBLEU's sentence chrF2 (Popovic 2015), for
samples and n-best lists.

Letters: K candidates, G n-grams.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from sacrebleu.metrics.helpers import extract_all_char_ngrams

ORDER = 6  # the longest n-grams, in characters without white space
SQUARED_BETA = 4.0  # recall counts twice as much as precision

Matrix = npt.NDArray[np.float64]


def expected_chrf(candidates: Sequence[str]) -> npt.NDArray[np.float64]:
    """Return the mean chrF [K] of each candidate against all others, 0 to 100; 0 for a candidate
    without others.
    """
    texts = list(dict.fromkeys(candidates))
    place = {text: i for i, text in enumerate(texts)}
    of_candidates = [place[text] for text in candidates]
    scores = chrf(texts)
    counts = np.bincount(of_candidates, minlength=len(texts))
    others = scores @ counts - scores.diagonal()  # a candidate's own copy is no reference
    return others[of_candidates] / max(len(candidates) - 1, 1)


def chrf(texts: Sequence[str]) -> Matrix:
    """Return sacreBLEU's sentence chrF2 [K, K] of each text with each as its reference.

    The n-grams of a text are counted once, and not for each pair.
    """
    counters = [extract_all_char_ngrams(text, ORDER) for text in texts]
    precision, recall, orders = (np.zeros((len(texts), len(texts))) for _ in range(3))
    for order in range(ORDER):
        columns: dict[str, int] = {}
        for counter in counters:
            for ngram in counter[order]:
                columns.setdefault(ngram, len(columns))
        counts = np.zeros((len(texts), len(columns)), dtype=np.int32)  # [K, G]
        for row, counter in zip(counts, counters, strict=True):
            row[[columns[ngram] for ngram in counter[order]]] = list(counter[order].values())
        matches = np.stack([np.minimum(row, counts).sum(axis=1) for row in counts])  # [K, K]
        totals = counts.sum(axis=1)
        # sacreBLEU's effective order: a text may be too short for an n-gram.
        both = np.outer(totals, totals) > 0
        precision += both * matches / np.maximum(totals, 1)[:, None]
        recall += both * matches / np.maximum(totals, 1)
        orders += both
    precision, recall = precision / np.maximum(orders, 1), recall / np.maximum(orders, 1)
    divisor = SQUARED_BETA * precision + recall
    return 100 * (1 + SQUARED_BETA) * precision * recall / np.where(divisor > 0, divisor, 1)
