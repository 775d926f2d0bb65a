"""The parsing recipe, every stage of it, on made-up trees."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from nmt_cli.data.trees import parse_trees

RECIPE = Path(__file__).resolve().parents[2] / "recipes" / "wsj_parsing.sh"


def recipe(*arguments: object) -> subprocess.CompletedProcess[str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "OMP_NUM_THREADS": "1"}
    command = [str(RECIPE), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, encoding="utf-8", env=environment, timeout=580)


def test_smoke_runs_every_stage_once(tmp_path: Path) -> None:
    first = recipe("--smoke", "--out", tmp_path)
    assert first.returncode == 0, first.stderr
    for line in ("| train, trees | | 300 | |", "| test, constrained: repairs | | 0 of 20 outputs | |"):
        assert line in first.stdout
    assert "nothing about quality" in first.stdout
    silver = (tmp_path / "silver.ptb").read_text(encoding="utf-8").split("\n")[:-1]
    assert [len(placed.tree.words) for placed in parse_trees(silver, "silver.ptb")] == [6, 10]
    listed = recipe("--smoke", "--out", tmp_path, "--list").stdout.split("\n")[:-1]
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
    silver = tmp_path / "silver.ptb"
    silver.write_text("(TOP (S (NP (NN snow)) (VP (VBZ falls))))\n" * 3, encoding="utf-8")
    done = recipe("--smoke", "--semi-supervised", silver, "--out", tmp_path / "out", "--to", "prepare")
    assert done.returncode == 0, done.stderr
    manifest = json.loads((tmp_path / "out" / "data" / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["splits"]["train"]["sentences"] == 303


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
    ):
        wrong = recipe(*arguments)
        assert wrong.returncode == 2, arguments
        assert message in wrong.stderr
