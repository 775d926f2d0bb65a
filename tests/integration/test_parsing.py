"""Parsing by the real commands: from a treebank to F1."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from toy_trees import treebank

from nmt_cli.annexes.parsing.trees import parse_trees

Nmt = Callable[..., subprocess.CompletedProcess[str]]

SMALL = (
    "--num-layers 1 --d-model 64 --d-ff 128 --num-heads 4 --dropout 0 --label-smoothing 0 "
    "--batch-tokens 1024 "
    "--warmup-steps 60 --learning-rate-scale 0.25 --micro-batches 1 --validate-every 360 "
    "--save-every 180"
).split()
TREES = treebank(12, 0, 0)["train"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("parsing")


@pytest.fixture(scope="module")
def data(nmt: Nmt, folder: Path) -> Path:
    """A few trees to overfit to, the same for training, validation and test."""
    (folder / "trees.ptb").write_text("".join(f"{line}\n" for line in TREES), encoding="utf-8")
    splits = [
        part
        for split in ("train", "valid", "test")
        for part in (f"--{split}", folder / "trees.ptb")
    ]
    flags = ["--task", "parsing", "--subwords", "none", "--linearisation", "authors"]
    nmt("prepare", *flags, *splits, "--out", folder / "data")
    return folder / "data"


@pytest.fixture(scope="module")
def run(nmt: Nmt, data: Path, folder: Path) -> Path:
    nmt("train", data, *SMALL, "--max-steps", 360, "--best-by", "f1", "--out", folder / "run")
    return folder / "run"


def parse(nmt: Nmt, run: Path, sentences: str, *flags: str) -> tuple[list[str], str]:
    """Return the trees and the last line on standard error."""
    done = nmt("translate", run, *flags, stdin=sentences)
    return done.stdout.split("\n")[:-1], done.stderr.split("\n")[-2]


def check_constrained(message: str) -> None:
    """The brackets are whole, and there are as many leaves as words. Some may find other words."""
    kinds = dict(
        part.rsplit(" ", 1) for part in message.partition("outputs: ")[2].split(", ") if part
    )
    assert kinds.keys() <= {"missing words", "surplus words", "empty"}
    assert kinds.get("missing words") == kinds.get("surplus words")


def test_a_model_that_overfits_gives_its_training_trees(
    nmt: Nmt, data: Path, run: Path, folder: Path
) -> None:
    sentences = (data / "test.source.txt").read_text(encoding="utf-8")
    assert nmt("translate", run, "--test").stdout == nmt("translate", run, stdin=sentences).stdout
    for flags in ((), ("--constrained",)):
        lines, message = parse(nmt, run, sentences, *flags)
        (folder / "output.ptb").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        done = nmt("score-trees", folder / "output.ptb", "--ref", run, "--json")
        scores = json.loads(done.stdout)
        assert scores["f1"] >= 90, message
        assert scores["valid_sentences"] == len(TREES)
    check_constrained(message)


def test_validation_while_training_is_f1(run: Path) -> None:
    records = [
        json.loads(line)
        for line in (run / "metrics.jsonl").read_text(encoding="utf-8").split("\n")[:-1]
    ]
    assert records[-1]["validation_f1"] >= 90
    scores = {
        record["step"]: record["validation_f1"] for record in records if "validation_f1" in record
    }
    summary = json.loads((run / "summary.json").read_text(encoding="utf-8"))
    assert summary["best_validation_f1"] == max(scores.values()) == scores[summary["best_step"]]


def test_every_output_is_a_tree_over_the_words_and_constrained_ones_have_all_brackets(
    nmt: Nmt, run: Path
) -> None:
    """Also for inputs unlike the training data: unknown words, brackets, one word, many words."""
    sentences = [
        "xyzzy",
        "( the ) ) cat [ x ]",
        " ".join(["the cat"] * 20),
        "the\u00a0cat  sees\tthe dog",
    ]
    for flags in ((), ("--constrained",)):
        lines, message = parse(nmt, run, "\n\n".join(sentences), "--beam", "5", *flags)
        assert lines[1::2] == ["", "", ""]
        words = [
            [placed.tree.words for placed in parse_trees([line], "output")] for line in lines[::2]
        ]
        assert words == [
            [["xyzzy"]],
            [["-LRB-", "the", "-RRB-", "-RRB-", "cat", "[", "x", "]"]],
            [["the", "cat"] * 20],
            [["the\u00a0cat", "sees", "the", "dog"]],
        ]
    check_constrained(message)


def test_a_terminal_gets_drawings_and_a_pipe_brackets(run: Path) -> None:
    parent, child = pty.openpty()
    command = [sys.executable, "-m", "nmt_cli", "translate", str(run), "--constrained", "--quiet"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TERM": "dumb", "COLUMNS": "80"}
    subprocess.run(
        command, input=b"the cat\n", stdout=child, env=environment, check=True, timeout=120
    )
    os.close(child)
    drawn = os.read(parent, 1 << 16).decode()
    assert drawn.startswith("TOP\r\n")
    assert "── " in drawn
    assert "(" not in drawn
