"""Trees to symbols and back: exact for every tree of three treebanks and for any tree; repair of anything at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt_cli.errors import DataError
from nmt_cli.parsing.grammar import GrammarState, Limits
from nmt_cli.parsing.linearisation import Authors, Linearisation, Meaning, Repairs, Tag, Vinyals, read_back, repair
from nmt_cli.parsing.trees import (
    Close,
    Event,
    Leaf,
    Open,
    Tree,
    clean,
    parse_trees,
    read_clean_trees,
    tree_line,
    with_tags,
)

VINYALS = Vinyals()
AUTHORS = Authors(frozenset(("S", "NP", "VP", "PP")))
CAT = "(TOP (S (NP (DT the) (NN cat)) (VP (VBZ sleeps)) (. .)))"

ODD_NAMES = ["S", "NP", "VP", "XX", "NN", "/", "/NP", "~", "~NP", "~~", "<unk>", "</s>", "-LRB-"]
NAMES = st.sampled_from(ODD_NAMES) | st.text(
    st.characters(exclude_characters=" \t\n\v\f\r()", exclude_categories=["Cs"]), min_size=1, max_size=4
)
WORDS = st.sampled_from(["a", "-LRB-", "[", "XX", "/NP"])


def events(node: Any) -> list[Event]:
    """A nested tree, (label, children) or (tag, word), as events."""
    name, content = node
    if isinstance(content, str):
        return [Leaf(name, content)]
    return [Open(name), *(event for child in content for event in events(child)), Close(name)]


NODES = st.recursive(
    st.tuples(NAMES, WORDS), lambda nodes: st.tuples(NAMES, st.lists(nodes, min_size=1, max_size=4)), max_leaves=12
)
TREES = st.lists(NODES, min_size=1, max_size=3).map(lambda nodes: Tree(tuple(events(("TOP", nodes)))))
SYMBOLS = st.sampled_from(["(S", ")S", "(NP", ")NP", "XX", "S", "/S", "NP", "/NP", "NN", "<unk>", "", "(", "/", "a b"])


def tree_of(text: str) -> Tree:
    tree = clean(next(iter(parse_trees([text], "test"))).tree)
    assert tree is not None
    return tree


@pytest.mark.parametrize(
    ("way", "symbols"),
    [
        (VINYALS, "(S (NP XX XX )NP (VP XX )VP XX )S"),
        (AUTHORS, "S NP DT NN /NP VP VBZ /VP . /S"),
        (Authors(frozenset(("S", "NP", "DT"))), "S NP ~DT NN /NP ~(VP VBZ /VP . /S"),
    ],
)
def test_the_two_ways(way: Linearisation, symbols: str) -> None:
    assert way.symbols(tree_of(CAT)) == symbols.split()


@pytest.mark.parametrize(
    ("symbol", "meaning"),
    [
        ("NP", Open("NP")),
        ("/NP", Close("NP")),
        ("NN", Tag("NN")),
        ("~NP", Tag("NP")),
        ("~(WHNP", Open("WHNP")),
        ("~<unk>", Tag("<unk>")),
        ("<unk>", None),
        ("/", None),
        ("a b", None),
        ("(NP", None),
    ],
)
def test_what_symbols_of_the_authors_way_say(symbol: str, meaning: Meaning | None) -> None:
    assert AUTHORS.meaning(symbol) == meaning


@pytest.mark.parametrize(
    "name", ["craft.train.mrg", "craft.dev.mrg", "genia.train.ptb", "genia.dev.ptb", "gum.ccby-genres.ptb"]
)
def test_every_tree_of_the_treebanks_comes_back(shared_data: Path, name: str) -> None:
    """Both ways, exactly (up to tags where they are not written), and the grammar lets every one of them pass."""
    trees = [placed.tree for placed in read_clean_trees(shared_data / "trees" / f"{name}.gz")]
    authors = Authors(frozenset(label for tree in trees for label in tree.labels[1:]))
    limits = Limits.of(trees)
    for tree in trees:
        symbols, words = VINYALS.symbols(tree), tree.words
        assert with_tags(read_back(symbols, words, VINYALS), tree.tags) == tree
        assert read_back(authors.symbols(tree), words, authors) == tree
        state = GrammarState.start(len(words), len(symbols), limits)
        for symbol in symbols:
            meaning = VINYALS.meaning(symbol)
            assert meaning is not None
            state = state.advance(meaning)
        assert state.allowed() == (False, False, True, None)


@given(TREES, st.frozensets(NAMES))
def test_any_tree_comes_back_the_authors_way(tree: Tree, labels: frozenset[str]) -> None:
    way = Authors(labels)
    assert read_back(way.symbols(tree), tree.words, way) == tree


@given(TREES)
def test_any_tree_comes_back_from_brackets(tree: Tree) -> None:
    assert with_tags(read_back(VINYALS.symbols(tree), tree.words, VINYALS), tree.tags) == tree


@pytest.mark.parametrize("way", [VINYALS, AUTHORS])
@given(symbols=st.lists(SYMBOLS | st.text(max_size=3), max_size=30), words=st.lists(WORDS, max_size=8))
def test_repair_gives_a_tree_over_the_words_from_anything(
    way: Linearisation, symbols: list[str], words: list[str]
) -> None:
    tree, repairs = repair(symbols, words, way)
    assert tree.words == words
    if words:
        assert clean(next(iter(parse_trees([tree_line(tree)], "test"))).tree) == tree
    else:
        assert tree_line(tree) == "(TOP)"
    again, none = repair(way.symbols(tree), words, way)
    assert (again.labels, again.words) == (tree.labels, words)
    assert not none
    if not repairs and way is VINYALS:
        assert way.symbols(tree) == symbols


@pytest.mark.parametrize(
    ("symbols", "words", "tree", "repairs"),
    [
        ("", "a b", "(S (XX a) (XX b))", Repairs(flat=1)),
        ("(S (NP )NP )S", "a", "(S (XX a))", Repairs(empty=2, flat=1)),
        ("(S XX )S", "a b c", "(S (XX a) (XX b) (XX c))", Repairs(missing_words=2)),
        ("(S (NP XX", "a b", "(S (NP (XX a)) (XX b))", Repairs(unclosed=2, missing_words=1)),
        ("XX", "a b", "(XX a) (XX b)", Repairs(missing_words=1)),
        ("(S XX (NP XX )NP )S", "a", "(S (XX a))", Repairs(surplus_words=1, empty=1)),
        ("(S (NP XX )S", "a", "(S (NP (XX a)))", Repairs(unclosed=1)),
        ("(S (NP (PP XX )NP XX )S", "a b", "(S (NP (PP (XX a))) (XX b))", Repairs(unclosed=1)),
        ("(S (NP XX )VP XX )S", "a b", "(S (NP (XX a)) (XX b))", Repairs(mismatched=1)),
        (")S (S XX )S )S", "a", "(S (XX a))", Repairs(unopened=2)),
        ("(S <unk> XX )S", "a", "(S (XX a))", Repairs(meaningless=1)),
        ("(S (NP )NP XX )S", "a", "(S (XX a))", Repairs(empty=1)),
        ("(S XX )S (S XX )S", "a b c", "(S (XX a)) (S (XX b) (XX c))", Repairs(missing_words=1)),
        ("(S XX )S", "", "", Repairs(surplus_words=1, empty=1)),
    ],
)
def test_each_repair(symbols: str, words: str, tree: str, repairs: Repairs) -> None:
    mended, count = repair(symbols.split(), words.split(), VINYALS)
    assert tree_line(mended) == f"(TOP {tree})".replace(" )", ")")
    assert count == repairs
    with pytest.raises(DataError, match=f"no tree over the {len(words.split())} words"):
        read_back(symbols.split(), words.split(), VINYALS)


def test_repairs_add_up() -> None:
    assert Repairs(unclosed=1) + Repairs(unclosed=2, flat=1) == Repairs(unclosed=3, flat=1)
    assert not Repairs()


def test_repair_has_no_limit_of_depth() -> None:
    size = 100_000
    tree, repairs = repair(["(S"] * size + ["XX"] + [")NP"] * 5, ["a"], VINYALS)
    assert len(tree.labels) == size + 1
    assert repairs == Repairs(mismatched=5, unclosed=size - 5)
