"""Trees to symbols and back: exact for every tree of three treebanks and for random trees.

Repair of any sequence.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from long_form import LONG, only_long

from nmt_cli.annexes.parsing.constraint import END, GrammarState
from nmt_cli.annexes.parsing.linearisation import Authors, Linearisation, Vinyals, repair
from nmt_cli.annexes.parsing.symbols import TreeLimits
from nmt_cli.annexes.parsing.trees import (
    Close,
    Event,
    Leaf,
    Open,
    Tree,
    clean,
    line_tree,
    read_clean_trees,
    tree_line,
)

VINYALS = Vinyals()
AUTHORS = Authors(frozenset(("S", "NP", "VP", "PP")))
CAT = "(TOP (S (NP (DT the) (NN cat)) (VP (VBZ sleeps)) (. .)))"

ODD_NAMES = ["S", "NP", "VP", "XX", "NN", "/", "/NP", "~", "~NP", "~~", "<unk>", "</s>", "-LRB-"]
NAMES = st.sampled_from(ODD_NAMES) | st.text(
    st.characters(exclude_characters=" \t\n\v\f\r()", exclude_categories=["Cs"]),
    min_size=1,
    max_size=4,
)
WORDS = st.sampled_from(["a", "-LRB-", "[", "XX", "/NP"])


def labels(tree: Tree) -> list[str]:
    return [event.label for event in tree.events if isinstance(event, Open)]


def events(node: Any) -> list[Event]:
    """A nested tree, (label, children) or (tag, word), as events."""
    name, content = node
    if isinstance(content, str):
        return [Leaf(name, content)]
    return [Open(name), *(event for child in content for event in events(child)), Close(name)]


NODES = st.recursive(
    st.tuples(NAMES, WORDS),
    lambda nodes: st.tuples(NAMES, st.lists(nodes, min_size=1, max_size=4)),
    max_leaves=12,
)
TREES = st.lists(NODES, min_size=1, max_size=3).map(
    lambda nodes: Tree(tuple(events(("TOP", nodes))))
)
SYMBOLS = st.sampled_from(
    ["(S", ")S", "(NP", ")NP", "XX", "S", "/S", "NP", "/NP", "NN", "<unk>", "", "(", "/", "a b"]
)


@pytest.mark.parametrize(
    ("form", "symbols"),
    [
        (VINYALS, "(S (NP XX XX )NP (VP XX )VP XX )S"),
        (AUTHORS, "S NP DT NN /NP VP VBZ /VP . /S"),
        (Authors(frozenset(("S", "NP", "DT"))), "S NP ~DT NN /NP ~(VP VBZ /VP . /S"),
    ],
)
def test_the_two_forms(form: Linearisation, symbols: str) -> None:
    assert form.symbols(line_tree(CAT)) == symbols.split()


def read_back(symbols: list[str], words: list[str], form: Linearisation) -> Tree:
    tree, repairs = repair(symbols, words, form)
    assert repairs == {}
    return tree


@pytest.mark.parametrize(
    ("name", "count"),
    [
        pytest.param("craft.train.mrg", 18951, marks=only_long),
        ("craft.dev.mrg", 2780),
        pytest.param("genia.train.ptb", 14326, marks=only_long),
        ("genia.dev.ptb", 1361),
        ("gum.ccby-genres.ptb", 4636),
    ],
)
def test_every_tree_of_the_treebanks_round_trips(shared_data: Path, name: str, count: int) -> None:
    """In both forms, exactly (except for tags that are not written), as the grammar allows.

    The short form takes every fourth tree.
    """
    trees = [placed.tree for placed in read_clean_trees(shared_data / "trees" / f"{name}.gz")]
    assert len(trees) == count
    authors = Authors(frozenset(label for tree in trees for label in labels(tree)[1:]))
    limits = TreeLimits(1, 1)
    for tree in trees:
        limits = limits.including(tree)
    for tree in trees if LONG else trees[::4]:
        symbols, words = VINYALS.symbols(tree), tree.words
        assert (
            read_back(symbols, words, VINYALS).with_tags(leaf.tag for leaf in tree.leaves) == tree
        )
        assert read_back(authors.symbols(tree), words, authors) == tree
        state: GrammarState | None = GrammarState(len(words), len(symbols), limits)
        for symbol in symbols:
            assert state is not None
            state = state.advance(VINYALS.meaning(symbol))
        assert state is not None
        assert state.allowed() == (END, None)


@given(TREES, st.frozensets(NAMES))
def test_any_tree_round_trips(tree: Tree, labels: frozenset[str]) -> None:
    authors = Authors(labels)
    assert read_back(authors.symbols(tree), tree.words, authors) == tree
    assert (
        read_back(VINYALS.symbols(tree), tree.words, VINYALS).with_tags(
            leaf.tag for leaf in tree.leaves
        )
        == tree
    )


@pytest.mark.parametrize("form", [VINYALS, AUTHORS])
@given(
    symbols=st.lists(SYMBOLS | st.text(max_size=3), max_size=30), words=st.lists(WORDS, max_size=8)
)
def test_repair_gives_a_tree_over_the_words_from_anything(
    form: Linearisation, symbols: list[str], words: list[str]
) -> None:
    tree, repairs = repair(symbols, words, form)
    assert tree.words == words
    if words:
        assert clean(line_tree(tree_line(tree))) == tree
    else:
        assert tree_line(tree) == "(TOP)"
    again, none = repair(form.symbols(tree), words, form)
    assert (labels(again), again.words) == (labels(tree), words)
    assert not none
    if not repairs and form is VINYALS:
        assert form.symbols(tree) == symbols


@pytest.mark.parametrize(
    ("symbols", "words", "tree", "repairs"),
    [
        ("", "a b", "(S (XX a) (XX b))", {"flat": 1}),
        ("(S (NP )NP )S", "a", "(S (XX a))", {"empty": 2, "flat": 1}),
        ("(S XX )S", "a b c", "(S (XX a) (XX b) (XX c))", {"missing words": 2}),
        ("(S (NP XX", "a b", "(S (NP (XX a)) (XX b))", {"unclosed": 2, "missing words": 1}),
        ("XX", "a b", "(XX a) (XX b)", {"missing words": 1}),
        ("(S XX (NP XX )NP )S", "a", "(S (XX a))", {"surplus words": 1, "empty": 1}),
        ("(S (NP XX )S", "a", "(S (NP (XX a)))", {"unclosed": 1}),
        ("(S (NP (PP XX )NP XX )S", "a b", "(S (NP (PP (XX a))) (XX b))", {"unclosed": 1}),
        ("(S (NP XX )VP XX )S", "a b", "(S (NP (XX a)) (XX b))", {"mismatched": 1}),
        (")S (S XX )S )S", "a", "(S (XX a))", {"unopened": 2}),
        ("(S <unk> XX )S", "a", "(S (XX a))", {"meaningless": 1}),
        ("(S (NP )NP XX )S", "a", "(S (XX a))", {"empty": 1}),
        ("(S XX )S (S XX )S", "a b c", "(S (XX a)) (S (XX b) (XX c))", {"missing words": 1}),
        ("(S XX )S", "", "", {"surplus words": 1, "empty": 1}),
    ],
)
def test_each_repair(symbols: str, words: str, tree: str, repairs: dict[str, int]) -> None:
    repaired, count = repair(symbols.split(), words.split(), VINYALS)
    assert tree_line(repaired) == f"(TOP {tree})".replace(" )", ")")
    assert count == repairs


@pytest.mark.parametrize(
    ("symbols", "words", "tree", "repairs"),
    [
        # Without tags, "cat" would be a verb and "sleeps" a full stop.
        (
            "S NP DT JJ /NP VP VBZ /VP . /S",
            "the/DT big/JJ cat/NN sleeps/VBZ ./.",
            "(S (NP (DT the) (JJ big) (XX cat)) (VP (VBZ sleeps)) (. .))",
            {"missing words": 1},
        ),
        (
            "S NP DT JJ NN /NP VP VBZ /VP . /S",
            "the/DT cat/NN sleeps/VBZ ./.",
            "(S (NP (DT the) (NN cat)) (VP (VBZ sleeps)) (. .))",
            {"surplus words": 1},
        ),
        # A constituent that has only a surplus leaf.
        (
            "S NP DT NN /NP PP IN /PP VP VBZ /VP /S",
            "the/DT cat/NN sleeps/VBZ",
            "(S (NP (DT the) (NN cat)) (VP (VBZ sleeps)))",
            {"surplus words": 1, "empty": 1},
        ),
        # As many leaves as words: they move only if this explains more.
        ("S NN VBZ /S", "a/VBZ b/NN", "(S (NN a) (VBZ b))", {}),
        (
            "S NP DT JJ /NP VP VBZ NP DT NN IN /NP /VP /S",
            "the/DT big/JJ cat/NN sees/VBZ a/DT dog/NN",
            "(S (NP (DT the) (JJ big) (XX cat)) (VP (VBZ sees) (NP (DT a) (NN dog))))",
            {"missing words": 1, "surplus words": 1},
        ),
        # Words after all leaves, and words before them.
        (
            "S NN VBZ /S",
            "a/NN b/VBZ c/. d/.",
            "(S (NN a) (VBZ b) (XX c) (XX d))",
            {"missing words": 2},
        ),
        ("S NP NN /NP /S", "a/. b/. c/NN", "(S (NP (XX a) (XX b) (NN c)))", {"missing words": 2}),
        # Both at once.
        (
            "S DT CD JJ JJ NN /S",
            "a/IN b/DT c/CD d/NN",
            "(S (XX a) (DT b) (CD c) (NN d))",
            {"surplus words": 2, "missing words": 1},
        ),
        ("NP /NP", "a/NN b/NN", "(S (XX a) (XX b))", {"empty": 1, "flat": 1}),
    ],
)
def test_leaves_find_their_words_by_tags(
    symbols: str, words: str, tree: str, repairs: dict[str, int]
) -> None:
    text, tags = zip(*(word.split("/") for word in words.split()), strict=True)
    repaired, count = repair(symbols.split(), text, AUTHORS, tags)
    assert tree_line(repaired) == f"(TOP {tree})"
    assert count == repairs


@given(
    symbols=st.lists(SYMBOLS, max_size=30),
    tagged=st.lists(st.tuples(WORDS, st.sampled_from(["NN", "XX", "/NP"])), max_size=8),
)
def test_repair_with_tags_gives_a_tree_over_the_words(
    symbols: list[str], tagged: list[tuple[str, str]]
) -> None:
    words, tags = [word for word, _ in tagged], [tag for _, tag in tagged]
    tree, repairs = repair(symbols, words, AUTHORS, tags)
    assert tree.words == words
    assert not words or clean(line_tree(tree_line(tree))) == tree
    leaves = [symbol for symbol in symbols if isinstance(AUTHORS.meaning(symbol), Leaf)]
    added = repairs.get("missing words", 0) - repairs.get("surplus words", 0)
    assert len(leaves) + added == len(words) or "flat" in repairs
    right_tags = [leaf.tag for leaf in tree.leaves]
    assert repair(AUTHORS.symbols(tree), words, AUTHORS, right_tags) == (tree, {})


@given(tree=TREES, names=st.frozensets(NAMES), data=st.data())
def test_other_leaves_keep_their_words_if_one_is_left_out(
    tree: Tree, names: frozenset[str], data: st.DataObject
) -> None:
    """With the right tags, that all differ, one leaf that is left out changes no other."""
    tree = tree.with_tags(str(number) for number in range(len(tree.words)))
    form = Authors(names)
    left_out = data.draw(st.sampled_from(tree.leaves))
    symbols = form.symbols(tree)
    symbols.remove(form.symbol(left_out))
    repaired, repairs = repair(symbols, tree.words, form, [leaf.tag for leaf in tree.leaves])
    others = [leaf for leaf in tree.leaves if leaf != left_out]
    assert repaired.words == tree.words
    if others:
        assert [leaf for leaf in repaired.leaves if leaf.tag != "XX"] == others
    else:
        assert repairs["flat"] == 1


def test_repair_has_no_limit_of_depth() -> None:
    size = 100_000
    tree, repairs = repair(["(S"] * size + ["XX"] + [")NP"] * 5, ["a"], VINYALS)
    assert len(labels(tree)) == size + 1
    assert repairs == {"mismatched": 5, "unclosed": size - 5}
