"""`nmt score --metric brackets`, from files to what is printed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nmt_cli.cli import main

GOLD = "(TOP (S (NP (DT the) (NN cat)) (VP (VBZ sleeps)) (. .)))\n"


def nmt(*arguments: str | Path) -> int:
    """Runs `nmt score`; its exit code."""
    with pytest.raises(SystemExit) as left:
        main(["score", *map(str, arguments)])
    return int(left.value.code or 0)


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def results(file: Path) -> list[dict[str, float]]:
    """The two halves of the summary that the real program printed, by our names."""
    names = {
        "Number of sentence": "sentences",
        "Number of Error sentence": "error_sentences",
        "Number of Skip  sentence": "skipped_sentences",
        "Number of Valid sentence": "valid_sentences",
        "Bracketing Recall": "recall",
        "Bracketing Precision": "precision",
        "Bracketing FMeasure": "f1",
        "Complete match": "complete_match",
        "Average crossing": "average_crossing",
        "No crossing": "no_crossing",
        "2 or less crossing": "two_or_less_crossing",
        "Tagging accuracy": "tagging_accuracy",
    }
    halves: list[dict[str, float]] = []
    for line in file.read_text("utf-8").split("=== Summary ===")[1].split("\n"):
        if line.startswith("--"):
            halves.append({})
        elif line:
            name, value = line.split(" = ")
            halves[-1][names[name.strip()]] = float(value)
    return halves


@pytest.mark.parametrize("name", ["SHARE_craftdev", "SHARE_craftdev_err"])
def test_json_agrees_with_the_real_program(shared_data: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    folder = shared_data / "evalb"
    parameters = folder / "COLLINS.noabort.prm"
    files = (folder / f"{name}.tst", "--ref", folder / f"{name}.gld")
    assert nmt(*files, "--metric", "brackets", "--evalb-parameters", parameters, "--json") == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    everything, short = results(folder / f"{name}.COLLINS.noabort.rsl")
    assert everything.items() <= found.items()
    assert short.items() <= found["short"].items()
    assert found["cutoff_length"] == 40


def test_the_table_is_the_real_programs(shared_data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = shared_data / "evalb"
    files = (folder / "SHARE_craftdev.tst", "--ref", folder / "SHARE_craftdev.gld")
    assert nmt(*files, "--metric", "brackets", "--per-sentence") == 0
    assert capsys.readouterr().out == (folder / "SHARE_craftdev.COLLINS.rsl").read_text("utf-8")


def test_too_many_errors_stop(shared_data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As the real program: the table up to there, exit code 1, no summary; with --json nothing at all."""
    folder = shared_data / "evalb"
    files = (folder / "SHARE_craftdev_err.tst", "--ref", folder / "SHARE_craftdev_err.gld")
    assert nmt(*files, "--metric", "brackets", "--per-sentence") == 1
    printed = capsys.readouterr()
    assert printed.out == (folder / "SHARE_craftdev_err.COLLINS.rsl").read_text("utf-8")
    assert ":65: 12 errors, more than MAX_ERROR 10 allows (COLLINS, built in)" in printed.err
    assert nmt(*files, "--metric", "brackets", "--json") == 1
    assert capsys.readouterr().out == ""


def test_warns_where_the_score_flatters(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gold = written(tmp_path, "gold", GOLD * 3)
    test = written(tmp_path, "test", f"{GOLD}\n(TOP (S (DT the) (NN dog) (VBZ sleeps) (. .)))\n")
    assert nmt(test, "--ref", gold, "--metric", "brackets", "--json") == 0
    printed = capsys.readouterr()
    found = json.loads(printed.out)
    assert (found["f1"], found["strict"]["f1"]) == (100.0, 46.15)  # 3 of 9 gold and 4 test brackets
    assert found["errors"] == [{"line": 3, "message": "words unmatch: gold has cat, test has dog"}]
    assert f"{test}:3: words unmatch" in printed.err
    assert "F1 is 100.00 without them, and 46.15 if they count" in printed.err


def test_says_nothing_where_nothing_flatters(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gold = written(tmp_path, "gold", GOLD)
    assert nmt(gold, "--ref", gold, "--metric", "brackets") == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    assert printed.out.startswith("=== Summary ===\n\n-- All --\nNumber of sentence        =      1\n")
    assert printed.out.count("Bracketing FMeasure       = 100.00\n") == 2


def test_gold_tags(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A parser that writes XX for every tag would fail at each full stop."""
    gold = written(tmp_path, "gold", GOLD * 2)
    untagged = GOLD.replace("(DT", "(XX").replace("(NN", "(XX").replace("(VBZ", "(XX").replace("(.", "(XX")
    test = written(tmp_path, "test", untagged + "(TOP (S\n")
    for flags, valid, errors in ([], 0, 3), (["--gold-tags"], 1, 2):
        assert nmt(test, "--ref", gold, "--metric", "brackets", "--json", *flags) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["valid_sentences"] == valid
        assert len(found["errors"]) + found["skipped_sentences"] == errors


def test_notes_a_wrapper_that_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gold = written(tmp_path, "gold", "( (S (A a)))\n")
    assert nmt(gold, "--ref", gold, "--metric", "brackets") == 0
    assert f"note: {gold}: an outermost bracket without a label" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "code", "complaint"),
    [
        (["test", "test", "--ref", "gold", "--metric", "brackets"], 2, "compares one file of trees with one --ref"),
        (["test", "--ref", "gold", "--metric", "brackets", "--metric", "chrf"], 2, "by itself"),
        (["-", "--ref", "-", "--metric", "brackets"], 2, "standard input"),
        (["test", "--ref", "gold", "--per-sentence"], 2, "--per-sentence"),
        (["test", "--ref", "longer", "--metric", "brackets"], 1, "test has 1 lines but longer has 2"),
        (["absent", "--ref", "gold", "--metric", "brackets"], 1, "absent: cannot read this file"),
        (["test", "--ref", "gold", "--metric", "brackets", "--evalb-parameters", "gold"], 1, "gold:1: '(TOP' is no"),
    ],
)
def test_wrong_usage(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    code: int,
    complaint: str,
) -> None:
    for name, text in {"test": GOLD, "gold": GOLD, "longer": GOLD * 2}.items():
        written(tmp_path, name, text)
    monkeypatch.chdir(tmp_path)
    assert nmt(*arguments) == code
    printed = capsys.readouterr()
    assert printed.out == ""
    assert complaint in printed.err
