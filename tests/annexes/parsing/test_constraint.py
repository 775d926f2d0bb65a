"""The automaton accepts exactly the trees within the limits, without dead ends.

The masks equal it.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nmt_cli.annexes.parsing.constraint import (
    END,
    LEAF,
    OPENING,
    GrammarState,
    SymbolMasks,
    TreeConstraint,
)
from nmt_cli.annexes.parsing.linearisation import Vinyals, repair
from nmt_cli.annexes.parsing.symbols import LINEARISATIONS, TreeLimits, TreeSymbols
from nmt_cli.annexes.parsing.trees import line_tree
from nmt_cli.interfaces import EOS, SPECIAL_SYMBOLS

FORM = Vinyals()
TREES = ["(TOP (S (NP (DT the) (NN cat)) (VP (VBZ sees) (NP (DT the) (NN dog)))))"]


def after(state: GrammarState | None, symbols: Iterable[str]) -> GrammarState | None:
    for symbol in symbols:
        state = state.advance(FORM.meaning(symbol)) if state else None
    return state


@given(
    st.integers(0, 8),
    st.integers(0, 30),
    st.integers(1, 4),
    st.integers(1, 3),
    st.integers(0, 10**6),
)
def test_every_path_ends_in_a_tree(
    words: int, spare: int, depth: int, in_row: int, seed: int
) -> None:
    source = random.Random(seed)
    state = GrammarState(words, words + spare, TreeLimits(depth, in_row))
    symbols: list[str] = []
    while True:
        followers = [symbol for symbol in ("(S", "(N", "XX", ")S", ")N") if after(state, [symbol])]
        if state.allowed()[0] == END and (not followers or source.random() < 0.5):
            break
        symbols.append(source.choice(followers))
        following = after(state, symbols[-1:])
        assert following is not None
        state = following
    assert len(symbols) <= words + spare
    tree, repairs = repair(symbols, ["w"] * words, FORM)
    assert not repairs
    limits = TreeLimits(1, 1).including(tree)
    assert limits.depth <= depth
    assert limits.opens_in_row <= in_row


def test_all_trees_within_the_limits_and_no_others() -> None:
    """Of all short sequences, exactly those that need no repair are accepted."""
    start = GrammarState(2, 6, TreeLimits(depth=2, opens_in_row=2))
    for size in range(7):
        for symbols in itertools.product(("(S", "XX", ")S"), repeat=size):
            tree, repairs = repair(symbols, ["w"] * 2, FORM)
            within = not repairs and TreeLimits(1, 1).including(tree).depth <= 2
            state = after(start, symbols)
            assert (state is not None and state.allowed()[0] == END) == within, symbols


@pytest.mark.parametrize(
    ("words", "symbols_left", "limits", "before", "kinds", "closing"),
    [
        (1, 5, TreeLimits(2, 2), "", OPENING + LEAF, None),
        (1, 5, TreeLimits(2, 2), "(S (N", LEAF, None),
        (1, 9, TreeLimits(9, 1), "(S", LEAF, None),
        (1, 5, TreeLimits(2, 2), "(S (N XX", 0, "N"),
        (1, 5, TreeLimits(2, 2), "(S (N XX )N )S", END, None),
        # opens only what can still be closed
        (3, 4, TreeLimits(9, 9), "", LEAF, None),
        (3, 5, TreeLimits(9, 9), "", OPENING + LEAF, None),
        (3, 6, TreeLimits(9, 9), "(S", LEAF, None),
    ],
)
def test_allowed_symbols(
    words: int, symbols_left: int, limits: TreeLimits, before: str, kinds: int, closing: str | None
) -> None:
    state = after(GrammarState(words, symbols_left, limits), before.split())
    assert state is not None
    assert state.allowed() == (kinds, closing)


@pytest.fixture(params=LINEARISATIONS)
def symbols(request: pytest.FixtureRequest) -> TreeSymbols:
    return TreeSymbols.of(map(line_tree, TREES), request.param)


def start(symbols: TreeSymbols, words: list[int]) -> TreeConstraint:
    meanings = [None] * len(SPECIAL_SYMBOLS) + [
        symbols.linearisation.meaning(symbol) for symbol in symbols.symbols
    ]
    masks = SymbolMasks.of(meanings, torch.device("cpu"))
    return TreeConstraint(masks, [GrammarState(count, 40, TreeLimits(4, 3)) for count in words])


def allowed(constraint: TreeConstraint) -> torch.Tensor:
    """[N, V], true where the symbol may follow."""
    scores = torch.full((len(constraint.states), len(constraint.masks.meanings)), -0.5)
    constraint.restrict(scores)
    assert set(scores.unique().tolist()) <= {-0.5, -math.inf}
    return scores == -0.5


def expected(masks: SymbolMasks, state: GrammarState | None) -> list[bool]:
    """The mask, computed symbol by symbol from the automaton."""
    if state is None:
        return [False] * len(masks.meanings)
    return [
        state.allowed()[0] == END if number == EOS else state.advance(meaning) is not None
        for number, meaning in enumerate(masks.meanings)
    ]


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


def test_a_token_that_is_not_allowed_drops_only_its_hypothesis(symbols: TreeSymbols) -> None:
    constraint = start(symbols, [2, 2])
    opening = allowed(constraint)[0].nonzero().flatten().tolist()[0]
    closer = next(iter(constraint.masks.closing.values()))
    dropped = constraint.advance(torch.tensor([0, 0, 1]), torch.tensor([closer, EOS, opening]))
    assert allowed(dropped).any(dim=1).tolist() == [False, False, True]
    again = dropped.advance(torch.tensor([0, 2, 2]), torch.tensor([opening, opening, opening]))
    assert allowed(again).any(dim=1).tolist() == [False, True, True]
