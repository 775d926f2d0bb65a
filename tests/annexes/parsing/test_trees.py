"""Finding, reading, cleaning and writing trees: real treebanks, unusual ones, malformed ones."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest

from nmt_cli.annexes.parsing.trees import (
    Tree,
    clean,
    line_tree,
    line_words,
    parse_trees,
    read_clean_trees,
    retagged,
    tree_line,
    treebank_files,
)
from nmt_cli.errors import DataError
from nmt_cli.files.text import read_lines


def parsed(text: str) -> list[Tree]:
    return [placed.tree for placed in parse_trees(text.split("\n"), "test.mrg")]


def cleaned(text: str) -> str:
    tree = clean(parsed(text)[0])
    assert tree is not None
    return tree_line(tree)


@pytest.mark.parametrize("line", ["", "(TOP (NN a)) (TOP (NN b))", "(TOP (NN a)"])
def test_a_line_that_is_not_one_tree_is_an_error(line: str) -> None:
    with pytest.raises(DataError):
        line_tree(line)


@pytest.mark.parametrize(
    ("name", "trees"),
    [("craft.dev.mrg.gz", 2780), ("genia.dev.ptb.gz", 1361), ("gum.ccby-genres.ptb.gz", 4636)],
)
def test_real_treebanks(shared_data: Path, name: str, trees: int) -> None:
    """All words of the file but the traces are read. Cleaning is idempotent."""
    path = shared_data / "trees" / name
    count = 0
    words: list[str] = []
    for tree, _ in read_clean_trees(path):
        count += 1
        words += tree.words
        assert not re.search(r"\((NP[-=]|ROOT|TOP \(TOP)", tree_line(tree))
        assert clean(tree) == tree
    assert count == trees
    text = gzip.decompress(path.read_bytes()).decode("utf-8")
    leaves = [piece.strip(" \n").split(" ", 1) for piece in text.replace(")", "(").split("(")]
    assert words == [
        leaf[1].strip(" ") for leaf in leaves if len(leaf) == 2 and leaf[0] != "-NONE-"
    ]


def test_writing_gives_back_a_file_of_one_line_trees(shared_data: Path) -> None:
    path = shared_data / "trees" / "genia.dev.ptb.gz"
    expected = gzip.decompress(path.read_bytes()).decode("utf-8").rstrip("\n").split("\n")
    assert [
        tree_line(placed.tree) for placed in parse_trees(read_lines(path), str(path))
    ] == expected


@pytest.mark.parametrize(
    "text",
    [
        "(S (NP (DT the) (NN cat)))",
        "( (S (NP (DT the) (NN cat))) )",
        "((S (NP (DT the) (NN cat))))",
        "(TOP (S (NP (DT the) (NN cat))))",
        "(ROOT\n  (S\n    (NP (DT the)\n\t(NN cat))))\n",
        "(S1 (S\r\n(NP (DT the) (NN\ncat))))",
        "(TOP (S-TPC-1 (NP-SBJ=2 (DT the) (-NONE- *T*-1) (NN cat)) (VP (-NONE- *) (NP-PRD (-NONE- "
        "0)))))",
        "(TOP (S|X ( (NP (DT the) (NN cat)))))",
    ],
)
def test_every_wrapper_and_layout_cleans_to_one_tree(text: str) -> None:
    assert cleaned(text) == "(TOP (S (NP (DT the) (NN cat))))"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("(S (NP (NP-1 (NN x)) (-NONE- *)))", "(TOP (S (NP (NP (NN x)))))"),
        (
            "(S (-LRB- -LRB-) (-LRB- [) (NN x) (-RRB- -RRB-))",
            "(TOP (S (-LRB- -LRB-) (-LRB- [) (NN x) (-RRB- -RRB-)))",
        ),
        ("(S (-LRB- (NN x)) (PRT|ADVP (RP up)))", "(TOP (S (-LRB- (NN x)) (PRT (RP up))))"),
        ("(S (NN in  vitro))", "(TOP (S (NN in\u00a0vitro)))"),
        ("(S (NN a\u2009b))", "(TOP (S (NN a\u2009b)))"),
        ("(NN x)", "(TOP (NN x))"),
        ("( (S (NN x)) (. .))", "(TOP (S (NN x)) (. .))"),
        ("(S (TOP (NN-X x)))", "(TOP (S (TOP (NN-X x))))"),
    ],
)
def test_cleaning(text: str, expected: str) -> None:
    assert cleaned(text) == expected


def test_several_trees_on_a_line_and_their_places() -> None:
    trees = list(parse_trees(["", "(S (A a)) (S", "(B b))", "(S (C c))"], "f.mrg"))
    assert [(tree.words, place) for tree, place in trees] == [
        (["a"], "f.mrg:2"),
        (["b"], "f.mrg:2"),
        (["c"], "f.mrg:4"),
    ]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("(S (A a))\n(S (B b)", "2: unbalanced"),
        ("(A a)\n(TOP (S (A a))\n(TOP (S (B b))))", "2: unbalanced"),  # not one tree of two
        ("((S (A a))\n((S (B b))))", "1: unbalanced"),
        ("(S (A a)\n\n(B b))", "1: unbalanced"),
        ("(S (A a))\n(S (B b)))", "2: unbalanced"),
        ("(S (A a))\nstray (S (B b))", "2: text outside all brackets: 'stray'"),
        ("(S (NP (A a)) stray)", "1: the word 'stray'"),
        ("(S\nstray (A a))", "2: the word 'stray'"),
        ("(S (A a) (NP ))", "1: the bracket (NP) is empty"),
        ("(S (A a))\n()", "2: the bracket () is empty"),
    ],
)
def test_malformed_files_are_refused_by_line(text: str, complaint: str) -> None:
    with pytest.raises(DataError) as caught:
        parsed(text)
    assert str(caught.value).startswith(f"test.mrg:{complaint}")


def test_a_tree_of_traces_alone(tmp_path: Path) -> None:
    assert clean(parsed("(S (NP (-NONE- *)))")[0]) is None
    path = tmp_path / "traces.mrg"
    path.write_text("(S (A a))\n(S (NP (-NONE- *)))\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"traces\.mrg:2: a tree without words"):
        list(read_clean_trees(path))


def test_words_of_an_input_line() -> None:
    assert line_words(" a (b)\tc\u2009d  \u00a0 ") == ["a", "-LRB-b-RRB-", "c\u2009d", "\u00a0"]
    assert line_words("") == []


@pytest.mark.parametrize(
    ("test", "gold", "expected"),
    [
        ("(S (XX a) (XX b))", "(S (DT a) (NP (NN b)))", "(S (DT a) (NN b))"),
        ("(S (XX a) (-NONE- *))", "(S (-NONE- 0) (DT a))", "(S (DT a) (-NONE- *))"),
        ("(S (XX a))", "(S (DT b))", None),
        ("(S (XX a)", "(S (DT a))", None),
        ("(S (XX a)) (S (XX a))", "(S (DT a))", None),
        ("", "(S (DT a))", None),
    ],
)
def test_gold_tags(test: str, gold: str, expected: str | None) -> None:
    assert retagged(test, gold) == expected


def write(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("(S (N a))\n")
    return path


def test_a_treebank_is_a_file_plain_or_compressed(tmp_path: Path) -> None:
    plain, packed = write(tmp_path / "a.txt"), write(tmp_path / "b.ptb.gz")
    assert treebank_files(str(plain)) == [plain]
    assert treebank_files(str(tmp_path / "b.ptb")) == [packed]
    assert treebank_files(str(packed)) == [packed]
    with pytest.raises(DataError, match=r"missing: no such file.*missing\.gz"):
        treebank_files(str(tmp_path / "missing"))


def test_a_treebank_is_a_directory_like_the_penn_treebanks(tmp_path: Path) -> None:
    files = ["02/wsj_0201.mrg", "02/wsj_0202.mrg", "03/wsj_0301.mrg.gz"]
    for name in [*reversed(files), "02/readme", "04/a.prd"]:
        write(tmp_path / name)
    assert [
        path.relative_to(tmp_path).as_posix() for path in treebank_files(str(tmp_path))
    ] == files
    with pytest.raises(DataError, match=r"04.*\.mrg"):
        treebank_files(str(tmp_path / "04"))
