"""The parsing recipe, every stage of it, on made-up trees."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from toy_trees import treebank

from nmt_cli.parsing.trees import parse_trees

RECIPE = Path(__file__).resolve().parents[2] / "recipes" / "wsj_parsing.sh"


def recipe(*arguments: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "OMP_NUM_THREADS": "1"}
    command = [str(RECIPE), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, encoding="utf-8", env=environment, timeout=580, cwd=cwd)


def test_smoke_runs_every_stage_once(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("the cat sees the dog .\n\nthe old bird likes the song of the child .\n")
    flags = ["--smoke", "--make-silver", "mine.txt", "--out", "."]
    first = recipe(*flags, cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    for line in ("| train, trees | | 300 | |", "| test, constrained: repairs | | none | |"):
        assert line in first.stdout
    assert "nothing about quality" in first.stdout
    silver = (tmp_path / "silver.ptb").read_text(encoding="utf-8").split("\n")[:-1]
    assert [len(placed.tree.words) for placed in parse_trees(silver, "silver.ptb")] == [6, 10]
    listed = recipe(*flags, "--list", cwd=tmp_path).stdout.split("\n")[:-1]
    assert [line.split()[0] for line in listed] == [
        *(
            "treebank",
            "prepare",
            "sweep-dropout-0.1-scale-0.5",
            "sweep-dropout-0.1-scale-1",
            "choose",
            "train",
            "average",
        ),
        *("parse-dev", "constrain-dev", "parse-test", "constrain-test", "silver", "table"),
    ]
    assert all(" done " in line for line in listed)


def test_silver_trees_are_learnt_from_beside_the_treebanks_own(tmp_path: Path) -> None:
    """All files are named from the folder one stands in, one by a link; another content of the same size is noticed."""
    trees = treebank(300, 20, 0)
    for name, lines in (("made-up", trees["train"]), ("my.dev.ptb", trees["dev"])):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    (tmp_path / "my.train.ptb").symlink_to("made-up")
    silver = tmp_path / "silver.ptb"
    silver.write_text("(TOP (S (NP (NN snow)) (VP (VBZ falls))))\n" * 3, encoding="utf-8")
    (tmp_path / "sentences.txt").write_text("the cat sees the dog .\n", encoding="utf-8")
    flags = ["--smoke", "--treebank", "my.train.ptb", "my.dev.ptb", "--semi-supervised", "silver.ptb"]
    flags += ["--make-silver", "sentences.txt", "--out", "out"]
    done = recipe(*flags, "--to", "prepare", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    manifest = json.loads((tmp_path / "out" / "data" / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["splits"]["train"]["sentences"] == 303
    (tmp_path / "my.toml").write_text("frobnicate = 1\n", encoding="utf-8")
    wrong = recipe(*flags, "--to", "sweep-dropout-0.1-scale-0.5", "--", "--config", "my.toml", cwd=tmp_path)
    assert wrong.returncode != 0
    assert "frobnicate" in wrong.stderr
    silver.write_text(silver.read_text(encoding="utf-8").replace("snow", "rain"), encoding="utf-8")
    listed = recipe(*flags, "--list", cwd=tmp_path).stdout.split("\n")
    assert [line.split()[:2] for line in listed[:2]] == [["treebank", "done"], ["prepare", "changed"]]


def test_it_explains_itself() -> None:
    shown = recipe("--help")
    assert shown.returncode == 0
    assert "not public" in shown.stdout
    assert "--from STAGE" in shown.stdout
    for arguments, message in (
        (["--frobnicate"], "--frobnicate"),
        ([], "which treebank?"),
        (["--ldc", "/nowhere"], "/nowhere"),
        (["--ldc", "/", "--treebank", "/"], "not both"),
        (["--smoke", "--make-silver", "/"], "--make-silver / is not a file"),
    ):
        wrong = recipe(*arguments)
        assert wrong.returncode == 2, arguments
        assert message in wrong.stderr
