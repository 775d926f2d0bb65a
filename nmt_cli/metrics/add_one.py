"""BLEU with one more match and one more n-gram in every order, as CodeXGLUE's evaluators count."""

from __future__ import annotations

from collections.abc import Sequence

from sacrebleu.metrics.bleu import BLEU, BLEUScore


class AddOneBLEU(BLEU):
    """sacreBLEU's BLEU, with `add-k` for single words, too, unlike Lin and Och (2004)."""

    def _compute_score_from_stats(self, stats: Sequence[int]) -> BLEUScore:
        smoothed = list(stats)  # two lengths, then the matches and the n-grams of each order
        for unigrams in (2, 2 + self.max_ngram_order):
            smoothed[unigrams] += 1
        return super()._compute_score_from_stats(smoothed)
