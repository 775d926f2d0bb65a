"""The automaton of well-formed sequences: never a dead end, nothing but trees, every tree within the limits."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt_cli.parsing.grammar import Allowed, GrammarState, Limits
from nmt_cli.parsing.linearisation import Meaning, Tag, Vinyals, repair
from nmt_cli.parsing.trees import Close, Open, clean, parse_trees

WAY = Vinyals()
MEANINGS: dict[str, Meaning] = {
    "(S": Open("S"),
    "(N": Open("N"),
    "XX": Tag("XX"),
    ")S": Close("S"),
    ")N": Close("N"),
}


def followers(state: GrammarState) -> list[str]:
    return [symbol for symbol, meaning in MEANINGS.items() if state.allows(meaning)]


@given(st.integers(0, 8), st.integers(0, 30), st.integers(1, 4), st.integers(1, 3), st.randoms(use_true_random=False))
def test_every_path_ends_in_a_tree(words: int, spare: int, depth: int, in_row: int, source: object) -> None:
    state = GrammarState.start(words, words + spare, Limits(depth, in_row))
    symbols: list[str] = []
    while not (state.allowed().end and (not followers(state) or source.random() < 0.5)):  # type: ignore[attr-defined]
        symbol = source.choice(followers(state))  # type: ignore[attr-defined]
        symbols.append(symbol)
        state = state.advance(MEANINGS[symbol])
        assert len(symbols) <= words + spare
    tree, repairs = repair(symbols, ["w"] * words, WAY)
    assert not repairs
    assert Limits.of([tree]).depth <= depth
    assert Limits.of([tree]).opens_in_row <= in_row


def test_all_trees_within_the_limits_and_no_others() -> None:
    """Against every sequence there is: those that it accepts are exactly those that need no repair."""
    words, length, limits = 2, 6, Limits(depth=2, opens_in_row=2)
    for size in range(length + 1):
        for symbols in itertools.product(("(S", "XX", ")S"), repeat=size):
            tree, repairs = repair(symbols, ["w"] * words, WAY)
            within = not repairs and Limits.of([tree]).depth <= 2
            assert accepts(symbols, words, length, limits) == within, symbols


def accepts(symbols: tuple[str, ...], words: int, length: int, limits: Limits) -> bool:
    state = GrammarState.start(words, length, limits)
    for symbol in symbols:
        if not state.allows(MEANINGS[symbol]):
            return False
        state = state.advance(MEANINGS[symbol])
    return state.allowed().end


def test_what_may_follow() -> None:
    start = GrammarState.start(1, 5, Limits(2, 2))
    assert start.allowed() == Allowed(opening=True, leaf=True, end=False, closing=None)
    inner = start.advance(Open("S")).advance(Open("N"))
    assert inner.allowed() == Allowed(opening=False, leaf=True, end=False, closing=None)
    full = inner.advance(Tag("XX"))
    assert full.allowed() == Allowed(opening=False, leaf=False, end=False, closing="N")
    assert full.advance(Close("N")).advance(Close("S")).allowed() == Allowed(False, False, True, None)
    assert not full.allows(None)


def test_opens_only_what_can_still_be_closed() -> None:
    limits = Limits(9, 9)
    assert not GrammarState.start(3, 4, limits).allowed().opening
    assert GrammarState.start(3, 5, limits).allowed().opening
    assert not GrammarState.start(3, 6, limits).advance(Open("S")).allowed().opening


def test_mistakes_of_the_caller() -> None:
    with pytest.raises(ValueError, match="3 words need"):
        GrammarState.start(3, 2, Limits(1, 1))
    with pytest.raises(ValueError, match="may not follow"):
        GrammarState.start(1, 3, Limits(1, 1)).advance(Close("S"))


def test_the_limits_of_trees() -> None:
    tree = clean(next(iter(parse_trees(["(TOP (S (A a) (X (Y (Z (B b))))) (C c))"], "test"))).tree)
    assert tree is not None
    assert Limits.of([tree]) == Limits(depth=4, opens_in_row=3)
    assert Limits.of([]) == Limits(1, 1)
