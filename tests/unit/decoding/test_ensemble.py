from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nmt_cli.decoding.beam_search import beam_search
from nmt_cli.decoding.ensemble import Ensemble
from nmt_cli.decoding.options import SearchSettings
from nmt_cli.interfaces import BOS


@settings(max_examples=20)
@given(seed=st.integers(0, 10**6), members=st.integers(1, 3))
def test_a_model_with_itself_gives_its_own_hypotheses(
    toy: Callable[..., Any], padded: Any, seed: int, members: int
) -> None:
    model, source = toy(9, seed), padded([[4, 5], [6], [7, 7, 7]])
    alone = beam_search(model, source, [8, 8, 8], SearchSettings(nbest=4))
    together = beam_search(Ensemble([model] * members), source, [8, 8, 8], SearchSettings(nbest=4))
    assert [[h.tokens for h in s] for s in together] == [[h.tokens for h in s] for s in alone]
    scores = [h.score for s in together for h in s]
    assert scores == pytest.approx([h.score for s in alone for h in s], abs=1e-5)


def test_probabilities_are_averaged_not_their_logarithms(
    toy: Callable[..., Any], padded: Any
) -> None:
    members = [toy(9, 1), toy(9, 2), toy(9, 3)]
    source, tokens = padded([[4, 5], [6]]), torch.tensor([BOS, BOS])
    expected = sum(m.step(tokens, m.start(source))[0].exp() for m in members) / 3
    ensemble = Ensemble(members)
    log_probabilities, state = ensemble.step(tokens, ensemble.start(source))
    assert torch.allclose(log_probabilities.exp(), expected, atol=1e-6)
    assert [member.hidden.shape[0] for member in state.select(torch.tensor([[1, 1]])).members] == [
        2,
        2,
        2,
    ]
