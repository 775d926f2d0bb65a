from __future__ import annotations

import dataclasses
import json

import pytest

from nmt_cli.annexes.parsing.symbols import LINEARISATIONS, TreeLimits, TreeSymbols
from nmt_cli.annexes.parsing.trees import line_tree

TREES = [
    "(TOP (S (NP (DT the) (NN cat)) (VP (VBZ sees) (NP (DT the) (NN dog)))))",
    "(TOP (NP (NP (NN NP))))",
]


@pytest.fixture(params=LINEARISATIONS)
def symbols(request: pytest.FixtureRequest) -> TreeSymbols:
    return TreeSymbols.of(map(line_tree, TREES), request.param)


def test_symbols_are_ranked_by_frequency_and_none_is_missing(symbols: TreeSymbols) -> None:
    written = [
        symbol for line in TREES for symbol in symbols.linearisation.symbols(line_tree(line))
    ]
    assert set(symbols.symbols) == set(written)
    counts = [written.count(symbol) for symbol in symbols.symbols]
    assert counts == sorted(counts, reverse=True)


def test_likely_tags_are_the_most_frequent_ones() -> None:
    lines = [
        *["(TOP (S (DT the) (NN run)))"] * 2,
        "(TOP (S (VB run) (VB see)))",
        "(TOP (NP (NN a\u00a0b) (FW the)))",
    ]
    symbols = TreeSymbols.of(map(line_tree, lines), "authors")
    saved = TreeSymbols.from_json(json.loads(json.dumps(symbols.to_json())))
    assert saved == symbols
    for same in (symbols, saved):
        tags = same.likely_tags(["the", "run", "see", "a\u00a0b", "unseen"])
        assert tags == ["DT", "NN", "VB", "NN", "XX"]


def test_symbols_without_tags(symbols: TreeSymbols) -> None:
    """Those of the form `vinyals`, and those that an older version saved."""
    older = symbols.to_json()
    del older["words_by_tag"]
    assert TreeSymbols.from_json(older) == dataclasses.replace(symbols, tags={})
    assert TreeSymbols.from_json(older).likely_tags(["the"]) == []
    assert bool(symbols.likely_tags(["the"])) == (symbols.form == "authors")


def test_limits_leave_room_beyond_the_treebank(symbols: TreeSymbols) -> None:
    assert symbols.limits == TreeLimits(3 + 10, 2 + 2)


def test_the_limits_of_trees() -> None:
    tree = line_tree("(TOP (S (A a) (X (Y (Z (B b))))) (C c))")
    assert TreeLimits(1, 1).including(tree) == TreeLimits(depth=4, opens_in_row=3)
    assert TreeLimits(5, 1).including(tree) == TreeLimits(5, 3)
