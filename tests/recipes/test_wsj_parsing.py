"""The parsing recipe, on made-up trees."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from toy_trees import treebank

Bash = Callable[..., CompletedProcess[str]]


def test_smoke_from_trees_to_the_table_and_again(recipes: Path, bash: Bash, tmp_path: Path) -> None:
    flags = (recipes / "wsj_parsing.sh", "--smoke", "--out", ".")
    first = bash(*flags, cwd=tmp_path)
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in first.stdout.split("\n")]
    assert ["train, trees", "", "300", ""] in rows
    assert ["test, constrained: repairs", "", "none", ""] in rows
    assert "nothing about quality" in first.stdout
    assert (tmp_path / "table.md").read_text(encoding="utf-8") == first.stdout
    written = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.ptb")}
    assert bash(*flags, cwd=tmp_path).stdout == first.stdout
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.ptb")} == written


def test_silver_trees_are_added_to_the_training_set(
    dry: Bash, calls: Callable[[], list[str]], tmp_path: Path
) -> None:
    """A link's name may name the split."""
    trees = treebank(300, 20, 0)
    for name, lines in (("made-up", trees["train"]), ("my.dev.ptb", trees["dev"])):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    (tmp_path / "my.train.ptb").symlink_to("made-up")
    flags = [
        *"--treebank my.train.ptb my.dev.ptb --semi-supervised silver.ptb".split(),
        *"--out out".split(),
    ]
    dry("wsj_parsing.sh", *flags, "--", "--seed", "3", STOP="train", code=9)
    prepare, train = calls()
    assert " --train out/trees/train.ptb " in prepare
    assert " --train silver.ptb " in prepare
    assert " --vocab-size 32000 " in prepare
    assert train.endswith("--dropout 0.1 --attention-dropout 0.1 --learning-rate-scale 0.5")
    assert "--preset parsing_wsj --seed 3 --max-steps 20000 " in train
    assert (tmp_path / "out/trees/test.ptb").read_text() == (tmp_path / "my.dev.ptb").read_text()


def test_a_single_point_is_taken(dry: Bash, calls: Callable[[], list[str]], tmp_path: Path) -> None:
    for name, lines in treebank(300, 20, 20).items():
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    flags = "--treebank train dev test --dropouts 0.3 --scales 2 --out out".split()
    dry("wsj_parsing.sh", *flags, STOP="average", code=9)
    _, train, _ = calls()
    assert "--out out/run " in train
    assert train.endswith("--dropout 0.3 --attention-dropout 0.3 --learning-rate-scale 2")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--treebank"),
        (["--ldc"], "--ldc"),
        (["--ldc", "/nowhere"], "/nowhere"),
        (["--ldc", "/", "--treebank", "/"], "--treebank"),
    ],
)
def test_wrong_usage(dry: Bash, tmp_path: Path, arguments: list[str], message: str) -> None:
    assert message in dry("wsj_parsing.sh", "--out", "out", *arguments, code=2).stderr
    assert not (tmp_path / "out").exists()
