"""The parsing recipe: every stage, on made-up trees."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from toy_trees import treebank

from nmt_cli.parsing.trees import parse_trees

Recipe = Callable[..., CompletedProcess[str]]


@pytest.fixture
def recipe(bash: Callable[..., CompletedProcess[str]], recipes: Path) -> Recipe:
    return lambda *arguments, **settings: bash(recipes / "wsj_parsing.sh", *arguments, **settings)


def stages(listed: CompletedProcess[str]) -> dict[str, str]:
    """The states of the stages by name, from `--list`."""
    rows = [line.split() for line in listed.stdout.split("\n") if line and not line.startswith(" ")]
    return {row[0]: row[1] for row in rows}


def test_smoke_runs_every_stage_once(recipe: Recipe, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("the cat sees the dog .\n\nthe old bird likes the song of the child .\n")
    flags = ["--smoke", "--make-silver", "mine.txt", "--out", "."]
    first = recipe(*flags, cwd=tmp_path)
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in first.stdout.split("\n")]
    assert ["train, trees", "", "300", ""] in rows
    assert ["test, constrained: repairs", "", "none", ""] in rows
    assert "nothing about quality" in first.stdout
    silver = (tmp_path / "silver.ptb").read_text(encoding="utf-8").split("\n")[:-1]
    assert [len(placed.tree.words) for placed in parse_trees(silver, "silver.ptb")] == [6, 10]
    listed = recipe(*flags, "--list", cwd=tmp_path)
    assert set(stages(listed).values()) == {"done"}
    assert [name for name in stages(listed) if not name.startswith(("parse", "score"))] == [
        *("toy", "treebank", "prepare", "sweep-dropout-0.1-scale-1", "choose", "train", "average", "silver", "table")
    ]
    assert "nmt score-trees test.ptb --ref trees/test.ptb --gold-tags --json > test.json\n" in listed.stdout
    assert "--constrained 2> test.constrained.log\n" in listed.stdout


def test_silver_trees_are_added_to_the_training_set(recipe: Recipe, tmp_path: Path) -> None:
    """Paths are relative to the caller's directory, and a link's name may name the split."""
    trees = treebank(300, 20, 0)
    silver = ["(TOP (S (NP (NN snow)) (VP (VBZ falls))))"] * 3
    for name, lines in (("made-up", trees["train"]), ("my.dev.ptb", trees["dev"]), ("silver.ptb", silver)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    (tmp_path / "my.train.ptb").symlink_to("made-up")
    (tmp_path / "my.toml").write_text("frobnicate = 1\n", encoding="utf-8")
    flags = ["--smoke", "--treebank", "my.train.ptb", "my.dev.ptb", "--semi-supervised", "silver.ptb", "--out", "out"]
    wrong = recipe(*flags, "--", "--config", "my.toml", cwd=tmp_path, code=2)
    assert "frobnicate" in wrong.stderr
    recipe(*flags, "--to", "prepare", cwd=tmp_path)
    manifest = json.loads((tmp_path / "out" / "data" / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["splits"]["train"]["sentences"] == 303
    for name, changed in (("silver.ptb", ["prepare"]), ("made-up", ["treebank", "prepare"])):
        (tmp_path / name).write_text("(S (N a))\n")
        states = stages(recipe(*flags, "--list", cwd=tmp_path))
        assert [stage for stage, state in states.items() if state == "changed"] == changed


def test_help_and_wrong_usage(recipe: Recipe) -> None:
    shown = recipe("--help").stdout
    assert "not public" in shown
    assert "--from STAGE" in shown
    for arguments, message in (
        (["--frobnicate"], "--frobnicate"),
        ([], "which treebank?"),
        (["--ldc"], "--ldc needs a value"),
        (["--ldc", "/nowhere"], "/nowhere"),
        (["--ldc", "/", "--treebank", "/"], "not both"),
        (["--smoke", "--make-silver", "/"], "/ is not a file"),
    ):
        assert message in recipe(*arguments, code=2).stderr
