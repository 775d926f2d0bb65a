from __future__ import annotations

from pathlib import Path

from toy_trees import treebank, write_treebank

from nmt_cli.parsing.trees import line_tree, read_clean_trees, tree_line


def test_splits_share_no_tree_and_are_read_back(tmp_path: Path) -> None:
    write_treebank(tmp_path, train=200, dev=20, test=30)
    trees = {
        part: [tree_line(t.tree) for t in read_clean_trees(tmp_path / f"{part}.ptb")]
        for part in ("train", "dev", "test")
    }
    assert {part: len(lines) for part, lines in trees.items()} == {"train": 200, "dev": 20, "test": 30}
    assert len({line for lines in trees.values() for line in lines}) == 250
    assert trees == treebank(200, 20, 30)


def test_words_determine_the_tree() -> None:
    trees = [line_tree(line) for line in treebank(2000, 0, 0)["train"]]
    assert len({tuple(tree.words) for tree in trees}) == len(trees)
