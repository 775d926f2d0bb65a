"""`nmt score-trees`: files in, output."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from nmt_cli.cli import main

GOLD = "(TOP (S (NP (DT the) (NN cat)) (VP (VBZ sleeps)) (. .)))\n"


SUMMARY = (  # in EVALB's order
    *("sentences", "error_sentences", "skipped_sentences", "valid_sentences", "recall", "precision", "f1"),
    *("complete_match", "average_crossing", "no_crossing", "two_or_less_crossing", "tagging_accuracy"),
)


def nmt(*arguments: str | Path) -> int:
    """Run `nmt score-trees`; return its exit code."""
    with pytest.raises(SystemExit) as left:
        main(["score-trees", *map(str, arguments)])
    return int(left.value.code or 0)


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("name", ["SHARE_craftdev", "SHARE_craftdev_err"])
def test_json_agrees_with_the_real_program(shared_data: Path, name: str, capfd: pytest.CaptureFixture[str]) -> None:
    folder = shared_data / "evalb"
    parameters = folder / "COLLINS.noabort.prm"
    files = (folder / f"{name}.tst", "--ref", folder / f"{name}.gld")
    assert nmt(*files, "--evalb-parameters", parameters, "--json") == 0
    found: dict[str, Any] = json.loads(capfd.readouterr().out)
    summary = (folder / f"{name}.COLLINS.noabort.rsl").read_text("utf-8").split("=== Summary ===")[1]
    printed = [float(value) for value in re.findall(r" = +([\d.]+)", summary)]
    assert [figures[key] for figures in (found, found["short"]) for key in SUMMARY] == printed
    assert found["cutoff_length"] == 40


def test_the_table_is_the_real_programs(shared_data: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = shared_data / "evalb"
    files = (folder / "SHARE_craftdev.tst", "--ref", folder / "SHARE_craftdev.gld")
    assert nmt(*files, "--per-sentence") == 0
    assert capfd.readouterr().out == (folder / "SHARE_craftdev.COLLINS.rsl").read_text("utf-8")


def test_too_many_errors_stop(shared_data: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """As the real program: the table up to there, exit code 1, no summary; with --json nothing at all."""
    folder = shared_data / "evalb"
    files = (folder / "SHARE_craftdev_err.tst", "--ref", folder / "SHARE_craftdev_err.gld")
    assert nmt(*files, "--per-sentence") == 1
    printed = capfd.readouterr()
    assert printed.out == (folder / "SHARE_craftdev_err.COLLINS.rsl").read_text("utf-8")
    assert ":65: 12 errors, more than MAX_ERROR 10 allows (COLLINS, built in)" in printed.err
    assert nmt(*files, "--json") == 1
    assert capfd.readouterr().out == ""


def scored(capfd: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[dict[str, Any], str]:
    """The object that `--json` prints, and standard error."""
    assert nmt(*arguments, "--json") == 0
    printed = capfd.readouterr()
    return json.loads(printed.out), printed.err


def test_warns_if_excluded_sentences_raise_the_score(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    gold = written(tmp_path, "gold", GOLD * 3)
    test = written(tmp_path, "test", f"{GOLD}\n(TOP (S (DT the) (NN dog) (VBZ sleeps) (. .)))\n")
    found, messages = scored(capfd, test, "--ref", gold)
    assert (found["f1"], found["strict"]["f1"]) == (100.0, 46.15)  # 3 of 9 gold and 4 test brackets
    assert (found["complete_match"], found["strict"]["complete_match"]) == (100.0, 33.33)
    assert [(error["line"], error["tree"]) for error in found["errors"]] == [(3, "test")]
    assert not [name for name in found["strict"] if "crossing" in name]
    assert f"{test}:3: words unmatch" in messages
    assert "2 sentences; counted as entirely wrong, F1 is 46.15 and complete match 33.33" in messages


def test_prints_the_summary_and_nothing_else_if_all_is_well(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A byte-order mark is no part of a tree."""
    gold, test = (written(tmp_path, name, f"\ufeff{GOLD}") for name in ("gold", "test"))
    assert nmt(test, "--ref", gold) == 0
    printed = capfd.readouterr()
    assert printed.err == ""
    assert printed.out.startswith("=== Summary ===\n\n-- All --\nNumber of sentence        =      1\n")
    assert printed.out.count("Bracketing FMeasure       = 100.00\n") == 2


def test_gold_tags(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A parser that writes XX for every tag would fail at each full stop."""
    gold = written(tmp_path, "gold", GOLD * 2)
    untagged = GOLD.replace("(DT", "(XX").replace("(NN", "(XX").replace("(VBZ", "(XX").replace("(.", "(XX")
    test = written(tmp_path, "test", untagged + "(TOP (S\n")
    for flags, valid, errors in ([], 0, 3), (["--gold-tags"], 1, 2):
        found, _ = scored(capfd, test, "--ref", gold, *flags)
        assert found["valid_sentences"] == valid
        assert len(found["errors"]) + found["skipped_sentences"] == errors


def test_an_error_in_the_gold_file_names_it(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    gold = written(tmp_path, "gold", GOLD + GOLD.replace(")))", "))"))
    test = written(tmp_path, "test", GOLD * 2)
    messages = scored(capfd, test, "--ref", gold)[1]
    assert f"{gold}:2: unbalanced" in messages
    assert f"{test}:" not in messages


def test_prints_the_first_errors_and_the_number_of_others(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    gold = written(tmp_path, "gold", GOLD * 15)
    test = written(tmp_path, "test", GOLD.replace("cat", "dog") * 15)
    assert nmt(test, "--ref", gold) == 1
    lines = capfd.readouterr().err.split("\n")
    assert lines[9].startswith(f"{test}:10: words unmatch")
    assert lines[10] == "... and 2 more errors"
    assert f"{test}:12: 12 errors, more than MAX_ERROR 10" in " ".join(lines[11:])


def test_notes_unlabelled_brackets(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    gold = written(tmp_path, "gold", "( (S (A a)))\n")
    test = written(tmp_path, "test", "(TOP (S (A a)))\n")
    assert scored(capfd, test, "--ref", gold)[1].startswith(f"note: {gold}: unlabelled")
    assert scored(capfd, test, "--ref", test)[1] == ""


def test_files_that_do_not_fit(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    one, two = written(tmp_path, "one", GOLD), written(tmp_path, "two", GOLD * 2)
    for arguments, complaint in (
        ((one, "--ref", two), f"{one} has 1 line but {two} has 2"),
        ((one, "--ref", one, "--evalb-parameters", two), f"{two}:1: '(TOP' is"),
    ):
        assert nmt(*arguments) == 1
        printed = capfd.readouterr()
        assert printed.out == ""
        assert complaint in printed.err
