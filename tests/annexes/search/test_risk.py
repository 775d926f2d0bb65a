"""Minimum Bayes risk: equal to sacreBLEU's sentence chrF, pair by pair."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sacrebleu.metrics import CHRF

from nmt_cli.annexes.search.risk import chrf, expected_chrf

CHRF2 = CHRF()
TEXTS = st.lists(st.text(alphabet="abcä \u3000漢", max_size=14), min_size=1, max_size=6)


@given(TEXTS)
def test_pairs_are_sacrebleus(texts: list[str]) -> None:
    their_similarities = [
        [CHRF2.sentence_score(text, [other]).score for other in texts] for text in texts
    ]
    np.testing.assert_allclose(chrf(texts), their_similarities, atol=1e-9)


@given(TEXTS)
def test_the_mean_is_over_the_others(texts: list[str]) -> None:
    expected = [
        sum(CHRF2.sentence_score(text, [other]).score for j, other in enumerate(texts) if j != i)
        / max(len(texts) - 1, 1)
        for i, text in enumerate(texts)
    ]
    np.testing.assert_allclose(expected_chrf(texts), expected, atol=1e-9)


def test_copies_count_and_the_mean_is_not_symmetric() -> None:
    a, b, c = expected_chrf(["ein hund", "ein hund", "eine katze läuft"])
    assert a == b > c > 0
    assert chrf(["ein hund läuft", "ein hund"])[0, 1] > chrf(["ein hund läuft", "ein hund"])[1, 0]
    assert expected_chrf(["ein hund"]) == pytest.approx([0])
