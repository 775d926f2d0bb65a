"""`nmt score-trees`: files in, output."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Nmt = Callable[..., tuple[int, str, str]]
Score = Callable[..., tuple[dict[str, Any], str]]

GOLD = "(TOP (S (NP (DT the) (NN cat)) (VP (VBZ sleeps)) (. .)))\n"


SUMMARY = (  # in EVALB's order
    *(
        "sentences",
        "error_sentences",
        "skipped_sentences",
        "valid_sentences",
        "recall",
        "precision",
        "f1",
    ),
    *(
        "complete_match",
        "average_crossing",
        "no_crossing",
        "two_or_less_crossing",
        "tagging_accuracy",
    ),
)


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


@pytest.fixture
def score(nmt: Nmt) -> Score:
    """Returns the object that `--json` prints, and standard error."""

    def run(*arguments: object) -> tuple[dict[str, Any], str]:
        code, out, err = nmt("score-trees", *arguments, "--json")
        assert code == 0
        return json.loads(out), err

    return run


@pytest.mark.parametrize("name", ["SHARE_craftdev", "SHARE_craftdev_err"])
def test_json_agrees_with_the_real_program(shared_data: Path, name: str, score: Score) -> None:
    folder = shared_data / "evalb"
    parameters = folder / "COLLINS.noabort.prm"
    report, _ = score(
        folder / f"{name}.tst", "--ref", folder / f"{name}.gld", "--evalb-parameters", parameters
    )
    summary = (
        (folder / f"{name}.COLLINS.noabort.rsl").read_text("utf-8").split("=== Summary ===")[1]
    )
    printed = [float(value) for value in re.findall(r" = +([\d.]+)", summary)]
    assert [figures[key] for figures in (report, report["short"]) for key in SUMMARY] == printed
    assert report["cutoff_length"] == 40


def test_the_table_is_the_real_programs(shared_data: Path, nmt: Nmt) -> None:
    folder = shared_data / "evalb"
    files = (folder / "SHARE_craftdev.tst", "--ref", folder / "SHARE_craftdev.gld")
    code, out, _ = nmt("score-trees", *files, "--per-sentence")
    assert (code, out) == (0, (folder / "SHARE_craftdev.COLLINS.rsl").read_text("utf-8"))


def test_too_many_errors_stop(shared_data: Path, nmt: Nmt) -> None:
    """As the real program: the table up to there, exit code 1, no summary.

    With --json nothing at all.
    """
    folder = shared_data / "evalb"
    files = (folder / "SHARE_craftdev_err.tst", "--ref", folder / "SHARE_craftdev_err.gld")
    code, out, err = nmt("score-trees", *files, "--per-sentence")
    assert (code, out) == (1, (folder / "SHARE_craftdev_err.COLLINS.rsl").read_text("utf-8"))
    assert ":65: 12 errors, more than MAX_ERROR 10 allows (COLLINS, built in)" in err
    assert nmt("score-trees", *files, "--json")[:2] == (1, "")


def test_warns_if_excluded_sentences_raise_the_score(tmp_path: Path, score: Score) -> None:
    gold = written(tmp_path, "gold", GOLD * 3)
    test = written(tmp_path, "test", f"{GOLD}\n(TOP (S (DT the) (NN dog) (VBZ sleeps) (. .)))\n")
    report, messages = score(test, "--ref", gold)
    # 3 of 9 gold and 4 test brackets.
    assert (report["f1"], report["strict"]["f1"]) == (
        100.0,
        46.15,
    )
    assert (report["complete_match"], report["strict"]["complete_match"]) == (100.0, 33.33)
    assert [(error["line"], error["tree"]) for error in report["errors"]] == [(3, "test")]
    assert not [name for name in report["strict"] if "crossing" in name]
    assert f"{test}:3: words unmatch" in messages
    assert (
        "2 sentences; counted as entirely wrong, F1 is 46.15 and complete match 33.33" in messages
    )


def test_prints_the_summary_and_nothing_else_if_all_is_well(tmp_path: Path, nmt: Nmt) -> None:
    """A byte-order mark is no part of a tree."""
    gold, test = (written(tmp_path, name, f"\ufeff{GOLD}") for name in ("gold", "test"))
    code, out, err = nmt("score-trees", test, "--ref", gold)
    assert (code, err) == (0, "")
    assert out.startswith("=== Summary ===\n\n-- All --\nNumber of sentence        =      1\n")
    assert out.count("Bracketing FMeasure       = 100.00\n") == 2


def test_gold_tags(tmp_path: Path, score: Score) -> None:
    """A parser that writes XX for every tag would fail at each full stop."""
    gold = written(tmp_path, "gold", GOLD * 2)
    untagged = (
        GOLD.replace("(DT", "(XX").replace("(NN", "(XX").replace("(VBZ", "(XX").replace("(.", "(XX")
    )
    test = written(tmp_path, "test", untagged + "(TOP (S\n")
    for flags, valid, errors in ([], 0, 3), (["--gold-tags"], 1, 2):
        report, _ = score(test, "--ref", gold, *flags)
        assert report["valid_sentences"] == valid
        assert len(report["errors"]) + report["skipped_sentences"] == errors


def test_an_error_in_the_gold_file_names_it(tmp_path: Path, score: Score) -> None:
    gold = written(tmp_path, "gold", GOLD + GOLD.replace(")))", "))"))
    test = written(tmp_path, "test", GOLD * 2)
    messages = score(test, "--ref", gold)[1]
    assert f"{gold}:2: unbalanced" in messages
    assert f"{test}:" not in messages


def test_prints_the_first_errors_and_the_number_of_others(tmp_path: Path, nmt: Nmt) -> None:
    gold = written(tmp_path, "gold", GOLD * 15)
    test = written(tmp_path, "test", GOLD.replace("cat", "dog") * 15)
    code, _, err = nmt("score-trees", test, "--ref", gold)
    lines = err.split("\n")
    assert code == 1
    assert lines[9].startswith(f"{test}:10: words unmatch")
    assert lines[10] == "... and 2 more errors"
    assert f"{test}:12: 12 errors, more than MAX_ERROR 10" in " ".join(lines[11:])


def test_notes_unlabelled_brackets(tmp_path: Path, score: Score) -> None:
    gold = written(tmp_path, "gold", "( (S (A a)))\n")
    test = written(tmp_path, "test", "(TOP (S (A a)))\n")
    assert score(test, "--ref", gold)[1].startswith(f"note: {gold}: unlabelled")
    assert score(test, "--ref", test)[1] == ""


def test_files_that_do_not_fit(tmp_path: Path, nmt: Nmt) -> None:
    one, two = written(tmp_path, "one", GOLD), written(tmp_path, "two", GOLD * 2)
    for arguments, complaint in (
        ((one, "--ref", two), f"{one} has 1 line but {two} has 2"),
        ((one, "--ref", one, "--evalb-parameters", two), f"{two}:1: '(TOP' is"),
    ):
        code, out, err = nmt("score-trees", *arguments)
        assert (code, out) == (1, "")
        assert complaint in err
    assert nmt("score-trees", "-", "--ref", "-")[0] == 2
