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
    message = "words unmatch: gold has cat, test has dog; both need the same sentence in this line"
    assert found["errors"] == [{"line": 3, "message": message, "tree": "test"}]
    assert (found["complete_match"], found["strict"]["complete_match"]) == (100.0, 33.33)
    assert not [name for name in found["strict"] if "crossing" in name]
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


def test_warns_where_only_complete_match_is_flattered(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The sentence left out has no bracket that counts, so F1 stays; half of the sentences are matched, not all."""
    gold = written(tmp_path, "gold", f"{GOLD}(TOP (NN a))\n")
    test = written(tmp_path, "test", f"{GOLD}(TOP (NN b))\n")
    assert nmt(test, "--ref", gold, "--metric", "brackets") == 0
    said = capsys.readouterr().err
    assert "EVALB leaves 1 sentence in error and 0 skipped out" in said
    assert "complete match is 100.00 without them, and 50.00 if they count as entirely wrong" in said
    assert "F1 is" not in said


def test_gold_tags_beside_traces(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A treebank's own trees have leaves that stand for no word, and no parser writes them."""
    traces = "(TOP (S (NP (-NONE- *T*-1)) (NP (DT the) (NN cat)) (VP (VBZ sleeps) (-NONE- *)) (. .)))\n"
    gold = written(tmp_path, "gold", traces * 2)
    test = written(
        tmp_path, "test", "(TOP (S (NP (XX the) (XX cat)) (VP (XX sleeps)) (XX .)))\n" + traces.replace("*T*-1", "*-2")
    )
    assert nmt(test, "--ref", gold, "--metric", "brackets", "--gold-tags", "--json") == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    found = json.loads(printed.out)
    assert (found["f1"], found["tagging_accuracy"], found["valid_sentences"]) == (100.0, 100.0, 2)


def test_says_where_gold_tags_could_not_be_put_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gold = written(tmp_path, "gold", GOLD * 4)
    dog = GOLD.replace("cat", "dog")
    for lines, where in (
        (f"{GOLD}\n{dog}(TOP (S\n", "2 sentences of {}, the first in line 3, got"),
        (GOLD * 2 + dog + GOLD, "1 sentence of {}, in line 3, got"),
    ):
        test = written(tmp_path, "test", lines)
        assert nmt(test, "--ref", gold, "--metric", "brackets", "--gold-tags") == 0
        assert f"note: --gold-tags: {where.format(test)} no tags: no sound tree" in capsys.readouterr().err


def test_a_fault_in_the_gold_file_is_told_as_such(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gold = written(tmp_path, "gold", GOLD + GOLD.replace(")))", "))"))
    test = written(tmp_path, "test", GOLD * 2)
    assert nmt(test, "--ref", gold, "--metric", "brackets") == 0
    said = capsys.readouterr().err
    assert f"{gold}:2: unbalanced: closing brackets are missing, 1 in all; add them\n" in said
    assert f"{test}:" not in said


def test_a_byte_order_mark_is_no_part_of_a_tree(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gold, test = (written(tmp_path, name, f"\ufeff{GOLD}") for name in ("gold", "test"))
    assert nmt(test, "--ref", gold, "--metric", "brackets", "--json") == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    assert json.loads(printed.out)["f1"] == 100.0


def test_the_error_that_stops_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gold = written(tmp_path, "gold", GOLD * 15)
    test = written(tmp_path, "test", GOLD.replace("cat", "dog") * 15)
    assert nmt(test, "--ref", gold, "--metric", "brackets") == 1
    said = capsys.readouterr().err.split("\n")
    assert said[9].startswith(f"{test}:10: words unmatch")
    assert said[10] == "... and 1 more"
    assert said[11].startswith(f"{test}:12: words unmatch")
    assert f"{test}:12: 12 errors, more than MAX_ERROR 10" in " ".join(said[12:])


def test_notes_brackets_without_a_label_that_count(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gold = written(tmp_path, "gold", "( (S (A a)))\n(())\n(( (S (A a))))\n")
    assert nmt(gold, "--ref", gold, "--metric", "brackets") == 0
    said = capsys.readouterr().err
    assert said.count("a bracket without a label") == 1
    assert f"note: {gold}: in 2 lines a bracket without a label, ( (S ...), counts" in said
    test = written(tmp_path, "test", "(TOP (S (A a)))\n(())\n(TOP (S (A a)))\n")
    assert nmt(test, "--ref", test, "--metric", "brackets") == 0
    assert "without a label" not in capsys.readouterr().err


def test_notes_what_is_passed_over_in_the_parameters(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gold, parameters = written(tmp_path, "gold", GOLD), written(tmp_path, "p", "DEBUG 1\nEQ_LABEL A\n")
    assert nmt(gold, "--ref", gold, "--metric", "brackets", "--evalb-parameters", parameters) == 0
    said = capsys.readouterr().err.split("\n")
    assert said[0].startswith(f"note: {parameters}:1: DEBUG 1 is ignored")
    assert said[1].startswith(f"note: {parameters}:2: EQ_LABEL takes two values")


@pytest.mark.parametrize(
    ("arguments", "code", "complaint"),
    [
        (["test", "test", "--ref", "gold", "--metric", "brackets"], 2, "compares one file of trees with one --ref"),
        (["test", "--ref", "gold", "--metric", "brackets", "--metric", "chrf"], 2, "by itself"),
        (["-", "--ref", "-", "--metric", "brackets"], 2, "standard input"),
        (["test", "--ref", "gold", "--per-sentence"], 2, "--per-sentence: only with --metric brackets"),
        (
            ["test", "--ref", "gold", "--gold-tags", "--evalb-parameters", "x"],
            2,
            "--evalb-parameters, --gold-tags: only",
        ),
        *(
            (["test", "--ref", "gold", "--metric", "brackets", *flag], 2, f"{flag[0]}: not with --metric brackets")
            for flag in (
                ("--test", "paired-bootstrap"),
                ("--test-samples", "5"),
                ("--target-lang", "de"),
                ("--allow-subword-marks",),
            )
        ),
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
