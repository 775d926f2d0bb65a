"""GLEU against NLTK's, and by hand."""

from __future__ import annotations

import pytest

from nmt_cli.criteria.expected_reward import gleu, ngrams

NLTK = [
    ([4, 5, 6, 7], [4, 5, 6, 7], 1.0),
    ([4, 5], [5, 4], 0.6666666666666666),
    ([4], [4, 5, 6], 0.16666666666666666),
    ([7, 8], [4, 5, 6], 0.0),
    ([4, 4, 6, 4], [6, 4, 4], 0.5),
    ([4, 4, 5, 4, 4, 4, 4, 5, 5, 4], [4, 4, 5, 4, 4, 4, 4, 5, 5, 4], 1.0),
    ([6, 5, 5, 4, 6, 4], [6, 6, 5, 5], 0.3888888888888889),
    ([6, 5, 5, 6, 5, 5, 6, 4, 6], [6, 5, 5, 6, 5, 5, 6, 4, 4, 6], 0.8235294117647058),
    ([7, 8, 7, 4, 4, 7, 6, 7, 6], [7, 8, 7, 4, 4, 6], 0.5),
    ([4, 6, 5, 4, 4, 5, 4], [4, 6, 4, 5, 4, 4, 5, 4], 0.6538461538461539),
    ([6, 5, 5, 5, 4, 4, 4, 4, 5, 4], [6, 5, 5, 6, 5, 4, 4, 4, 4], 0.5882352941176471),
]
"""Output, target, and what `nltk.translate.gleu_score.sentence_gleu` of NLTK 3.10.4 returned for them."""


@pytest.mark.parametrize(("output", "target", "expected"), NLTK)
def test_it_is_nltks(output: list[int], target: list[int], expected: float) -> None:
    assert gleu(ngrams(output), ngrams(target)) == pytest.approx(expected)
    assert gleu(ngrams(target), ngrams(output)) == pytest.approx(expected)  # symmetric, as the paper says


def test_by_hand() -> None:
    """`a b c d` for `a b c e f`: 3 + 2 + 1 + 0 of 5 + 4 + 3 + 2 n-grams."""
    assert gleu(ngrams([4, 5, 6, 7]), ngrams([4, 5, 6, 8, 9])) == 6 / 14


def test_an_empty_output_has_no_reward() -> None:
    assert gleu(ngrams([]), ngrams([4])) == gleu(ngrams([4]), ngrams([])) == gleu(ngrams([]), ngrams([])) == 0
