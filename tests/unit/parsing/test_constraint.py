"""The masks of the constraint, compared with the automaton."""

from __future__ import annotations

import math
import random

import pytest
import torch

from nmt_cli.interfaces import EOS, SPECIAL_SYMBOLS
from nmt_cli.parsing.constraint import SymbolMasks, TreeConstraint
from nmt_cli.parsing.grammar import GrammarState, TreeLimits
from nmt_cli.parsing.symbols import LINEARISATIONS, TreeSymbols
from nmt_cli.parsing.trees import line_tree

TREES = ["(TOP (S (NP (DT the) (NN cat)) (VP (VBZ sees) (NP (DT the) (NN dog)))))"]


@pytest.fixture(params=LINEARISATIONS)
def symbols(request: pytest.FixtureRequest) -> TreeSymbols:
    return TreeSymbols.of(map(line_tree, TREES), request.param)


def start(symbols: TreeSymbols, words: list[int], limit: int = 40) -> TreeConstraint:
    meanings = [None] * len(SPECIAL_SYMBOLS) + [symbols.linearisation.meaning(symbol) for symbol in symbols.symbols]
    masks = SymbolMasks.of(meanings, torch.device("cpu"))
    return TreeConstraint(masks, [GrammarState(count, limit, TreeLimits(4, 3)) for count in words])


def allowed(constraint: TreeConstraint) -> torch.Tensor:
    """[N, V], true where the symbol may follow."""
    scores = torch.full((len(constraint.states), len(constraint.masks.meanings)), -0.5)
    constraint.restrict(scores)
    assert set(scores.unique().tolist()) <= {-0.5, -math.inf}
    return scores == -0.5


def test_masks_equal_the_automaton_at_every_step(symbols: TreeSymbols) -> None:
    source = random.Random(1)
    constraint = start(symbols, [1, 3, 5, 2])
    for _ in range(60):
        mask = allowed(constraint)
        for row, state in zip(mask, constraint.states, strict=True):
            assert row.tolist() == expected(constraint.masks, state)
        choices = [torch.nonzero(row).flatten().tolist() for row in mask]
        rows = [number for number, choice in enumerate(choices) if choice and choice != [EOS]]
        if not rows:
            break
        tokens = [source.choice([token for token in choices[row] if token != EOS]) for row in rows]
        constraint = constraint.advance(torch.tensor(rows), torch.tensor(tokens))
    else:
        pytest.fail("the sequences do not come to an end")


def expected(masks: SymbolMasks, state: GrammarState | None) -> list[bool]:
    """The mask, computed symbol by symbol from the automaton."""
    if state is None:
        return [False] * len(masks.meanings)
    return [
        state.allowed().end if number == EOS else state.advance(meaning) is not None
        for number, meaning in enumerate(masks.meanings)
    ]


def test_a_token_that_is_not_allowed_drops_only_its_hypothesis(symbols: TreeSymbols) -> None:
    constraint = start(symbols, [2, 2])
    opening = allowed(constraint)[0].nonzero().flatten().tolist()[0]
    closer = next(iter(constraint.masks.closing.values()))
    after = constraint.advance(torch.tensor([0, 0, 1]), torch.tensor([closer, EOS, opening]))
    assert not allowed(after)[:2].any()
    assert allowed(after)[2].any()
    again = after.advance(torch.tensor([0, 2]), torch.tensor([opening, opening]))
    assert not allowed(again)[0].any()


def test_rows_are_repeated_and_left_out(symbols: TreeSymbols) -> None:
    constraint = start(symbols, [1, 4])
    opening = allowed(constraint)[1].nonzero().flatten().tolist()[0]
    after = constraint.advance(torch.tensor([1, 1, 1]), torch.tensor([opening] * 3))
    assert [state.words_left for state in after.states if state] == [after.states[0].words_left] * 3  # type: ignore[union-attr]
