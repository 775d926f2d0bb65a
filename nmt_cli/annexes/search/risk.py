"""Minimum Bayes risk (Kumar and Byrne 2004), for samples and n-best lists.

The similarity is sacreBLEU's sentence chrF2 (Popovic 2015).

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
    """Return the mean chrF [K] of each candidate against all others, 0 to 100.

    It is 0 for a candidate without others.
    """
    texts = list(dict.fromkeys(candidates))  # so that equal candidates are compared once
    place = {text: i for i, text in enumerate(texts)}
    places = [place[text] for text in candidates]
    scores = chrf(texts)
    counts = np.bincount(places, minlength=len(texts))
    sums = scores @ counts - scores.diagonal()  # a candidate is not its own reference
    return sums[places] / max(len(candidates) - 1, 1)


def chrf(texts: Sequence[str]) -> Matrix:
    """Return sacreBLEU's sentence chrF2 [K, K] of each text with each as its reference.

    The n-grams of a text are counted once, and not for each pair.
    """
    counters = [extract_all_char_ngrams(text, ORDER) for text in texts]
    K = len(texts)
    precision = np.zeros((K, K))
    recall = np.zeros((K, K))
    orders = np.zeros((K, K))  # the number of orders that count
    for order in range(ORDER):
        of_order = [counter[order] for counter in counters]
        column: dict[str, int] = {}  # of each n-gram
        for ngrams in of_order:
            for ngram in ngrams:
                column.setdefault(ngram, len(column))
        counts = np.zeros((K, len(column)), dtype=np.int32)  # [K, G]
        for row, ngrams in zip(counts, of_order, strict=True):
            row[[column[ngram] for ngram in ngrams]] = list(ngrams.values())
        matches = np.stack([np.minimum(row, counts).sum(axis=1) for row in counts])  # [K, K]
        totals = counts.sum(axis=1)
        # sacreBLEU's effective order: a text may be too short for an n-gram.
        both = np.outer(totals, totals) > 0
        precision += both * matches / np.maximum(totals, 1)[:, None]
        recall += both * matches / np.maximum(totals, 1)
        orders += both
    precision /= np.maximum(orders, 1)
    recall /= np.maximum(orders, 1)
    divisor = SQUARED_BETA * precision + recall
    return 100 * (1 + SQUARED_BETA) * precision * recall / np.where(divisor > 0, divisor, 1)
