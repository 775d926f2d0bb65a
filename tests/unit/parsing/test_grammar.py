"""The automaton accepts exactly the trees within the limits, without dead ends."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from nmt_cli.parsing.grammar import Allowed, GrammarState, TreeLimits
from nmt_cli.parsing.linearisation import Meaning, Tag, Vinyals, repair
from nmt_cli.parsing.trees import Close, Open, Tree, line_tree

WAY = Vinyals()
MEANINGS: dict[str, Meaning] = {
    "(S": Open("S"),
    "(N": Open("N"),
    "XX": Tag("XX"),
    ")S": Close("S"),
    ")N": Close("N"),
}


def followers(state: GrammarState) -> list[str]:
    return [symbol for symbol, meaning in MEANINGS.items() if state.advance(meaning)]


def after(state: GrammarState, *meanings: Meaning) -> GrammarState:
    for meaning in meanings:
        following = state.advance(meaning)
        assert following is not None
        state = following
    return state


def limits_of(tree: Tree) -> TreeLimits:
    return TreeLimits(1, 1).including(tree)


@given(st.integers(0, 8), st.integers(0, 30), st.integers(1, 4), st.integers(1, 3), st.randoms(use_true_random=False))
def test_every_path_ends_in_a_tree(words: int, spare: int, depth: int, in_row: int, source: object) -> None:
    state = GrammarState(words, words + spare, TreeLimits(depth, in_row))
    symbols: list[str] = []
    while not (state.allowed().end and (not followers(state) or source.random() < 0.5)):  # type: ignore[attr-defined]
        symbol = source.choice(followers(state))  # type: ignore[attr-defined]
        symbols.append(symbol)
        state = after(state, MEANINGS[symbol])
        assert len(symbols) <= words + spare
    tree, repairs = repair(symbols, ["w"] * words, WAY)
    assert not repairs
    assert limits_of(tree).depth <= depth
    assert limits_of(tree).opens_in_row <= in_row


def test_all_trees_within_the_limits_and_no_others() -> None:
    """Of all short sequences, exactly those that need no repair are accepted."""
    words, length, limits = 2, 6, TreeLimits(depth=2, opens_in_row=2)
    for size in range(length + 1):
        for symbols in itertools.product(("(S", "XX", ")S"), repeat=size):
            tree, repairs = repair(symbols, ["w"] * words, WAY)
            within = not repairs and limits_of(tree).depth <= 2
            assert accepts(symbols, words, length, limits) == within, symbols


def accepts(symbols: tuple[str, ...], words: int, length: int, limits: TreeLimits) -> bool:
    state: GrammarState | None = GrammarState(words, length, limits)
    for symbol in symbols:
        state = state.advance(MEANINGS[symbol]) if state else None
    return state is not None and state.allowed().end


def test_allowed_symbols() -> None:
    start = GrammarState(1, 5, TreeLimits(2, 2))
    assert start.allowed() == Allowed(opening=True, leaf=True, end=False, closing=None)
    inner = after(start, Open("S"), Open("N"))
    assert inner.allowed() == Allowed(opening=False, leaf=True, end=False, closing=None)
    full = after(inner, Tag("XX"))
    assert full.allowed() == Allowed(opening=False, leaf=False, end=False, closing="N")
    assert after(full, Close("N"), Close("S")).allowed() == Allowed(False, False, True, None)
    assert full.advance(None) is full.advance(Close("S")) is None


def test_opens_only_what_can_still_be_closed() -> None:
    limits = TreeLimits(9, 9)
    assert not GrammarState(3, 4, limits).allowed().opening
    assert GrammarState(3, 5, limits).allowed().opening
    assert not after(GrammarState(3, 6, limits), Open("S")).allowed().opening


def test_the_limits_of_trees() -> None:
    tree = line_tree("(TOP (S (A a) (X (Y (Z (B b))))) (C c))")
    assert limits_of(tree) == TreeLimits(depth=4, opens_in_row=3)
    assert TreeLimits(5, 1).including(tree) == TreeLimits(5, 3)
