from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from toy_trees import treebank

from nmt_cli.parsing.grammar import Limits
from nmt_cli.parsing.linearisation import Repairs, Tag
from nmt_cli.parsing.symbols import LINEARISATIONS, TreeSymbols, line_tree
from nmt_cli.parsing.trees import Close, Open

TREES = ["(TOP (S (NP (DT the) (NN cat)) (VP (VBZ sees) (NP (DT the) (NN dog)))))", "(TOP (NP (NP (NN NP))))"]


@pytest.fixture(params=LINEARISATIONS)
def symbols(request: pytest.FixtureRequest) -> TreeSymbols:
    return TreeSymbols.of(map(line_tree, TREES), request.param)


def test_symbols_are_ranked_by_frequency_and_none_is_missing(symbols: TreeSymbols) -> None:
    written = [symbol for line in TREES for symbol in symbols.write(line_tree(line))]
    assert set(symbols.symbols) == set(written)
    counts = [written.count(symbol) for symbol in symbols.symbols]
    assert counts == sorted(counts, reverse=True)


def test_limits_leave_room_beyond_the_treebank(symbols: TreeSymbols) -> None:
    seen = Limits.of(map(line_tree, TREES))
    assert symbols.limits.depth > seen.depth
    assert symbols.limits.opens_in_row > seen.opens_in_row


def test_json_both_ways(symbols: TreeSymbols) -> None:
    assert TreeSymbols.from_json(json.loads(json.dumps(symbols.to_json()))) == symbols


@pytest.mark.parametrize("wrong", [{"way": "upside down"}, {"limits": {"depth": 3}}, {"labels": None}])
def test_damaged_json(symbols: TreeSymbols, wrong: dict[str, object]) -> None:
    with pytest.raises((ValueError, TypeError, KeyError)):
        TreeSymbols.from_json({**symbols.to_json(), **wrong})


@given(st.integers(0, 10_000))
def test_what_is_written_is_read_back(seed: int) -> None:
    tree = line_tree(treebank(1, 0, 0, seed)["train"][0])
    symbols = TreeSymbols.of([tree], "authors")
    assert symbols.read(symbols.write(tree), tree.words) == (tree, Repairs())


def test_only_the_treebanks_own_symbols_mean_something() -> None:
    symbols = TreeSymbols.of(map(line_tree, TREES), "vinyals")
    assert symbols.meanings(["(S", ")S", "XX", "(UNHEARD", "</s>", "cat"]) == [
        Open("S"),
        Close("S"),
        Tag("XX"),
        None,
        None,
        None,
    ]
