from __future__ import annotations

import math
import re
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import nmt_cli
from nmt_cli.annexes.search.score_targets import ScoreTargetsOptions, format_score, score_targets
from nmt_cli.decoding.outputs import TargetScore
from nmt_cli.errors import DataError

SOURCE = ["abc", "", "hgfedcba", "ab", "fed", "a", "cab"]
TARGET = ["hg", "ab", "abc", "", "de fa", "h", "xyz"]


@pytest.fixture
def options(tiny_checkpoint: Path, tmp_path: Path) -> ScoreTargetsOptions:
    for name, lines in (("source", SOURCE), ("target", TARGET)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    return ScoreTargetsOptions(
        checkpoints=(tiny_checkpoint,),
        input=tmp_path / "source",
        target=tmp_path / "target",
        output=tmp_path / "out",
        device="cpu",
    )


def run(options: ScoreTargetsOptions, **changes: Any) -> list[list[str]]:
    """Return the columns of each line."""
    changed = replace(options, **changes)
    score_targets(changed)
    assert changed.output is not None
    content = changed.output.read_text()
    assert content.endswith("\n") or not content
    return [line.split("\t") for line in content.split("\n")[:-1]]


def test_a_line_for_each_line_and_the_perplexity(
    options: ScoreTargetsOptions, tiny_checkpoint: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    rows = run(options)
    expected = nmt_cli.load(tiny_checkpoint, device="cpu").score_targets(SOURCE, TARGET)
    assert [float(row[0]) for row in rows] == pytest.approx(
        [translation.score for translation in expected], abs=1e-3
    )
    assert [row[1:] for row in rows] == [
        [str(len(translation.tokens) + 1), translation.target] for translation in expected
    ]
    out, err = capfd.readouterr()
    assert out == ""
    tokens = sum(int(row[1]) for row in rows)
    match = re.search(r"scored 7 lines in .*\nperplexity ([\d.,]+) on (\d+) target tokens", err)
    assert match is not None
    perplexity = math.exp(-sum(float(row[0]) for row in rows) / tokens)
    assert float(match[1].replace(",", "")) == pytest.approx(perplexity, rel=1e-3)
    assert int(match[2]) == tokens


def test_windows_and_batches_change_nothing(options: ScoreTargetsOptions) -> None:
    whole = run(options)
    small = run(options, read_ahead=2, batch_tokens=5)
    assert [row[1:] for row in small] == [row[1:] for row in whole]
    assert [float(row[0]) for row in small] == pytest.approx(
        [float(row[0]) for row in whole], abs=2e-4
    )


def test_the_tokens_and_their_scores(options: ScoreTargetsOptions) -> None:
    for row, plain in zip(run(options, token_scores=True), run(options), strict=True):
        assert [row[0], row[1], row[3]] == plain
        pairs = [pair.rpartition(":") for pair in row[2].split()]
        assert len(pairs) == int(row[1])
        assert pairs[-1][0] == "</s>"
        assert sum(float(value) for _, _, value in pairs) == pytest.approx(float(row[0]), abs=1e-3)


def test_no_text_and_no_token_breaks_the_columns() -> None:
    score = TargetScore(
        "s", "a\tb\rc", ["a b", "\t", ":"], [-0.25, -0.5, -0.125, -1.0], False, False
    )
    assert format_score(score, token_scores=True) == (
        "-1.8750\t4\ta▁b:-0.2500 ▁:-0.5000 ::-0.1250 </s>:-1.0000\ta b c\n"
    )
    cut = TargetScore("s", "ab", ["a"], [-0.25], False, target_truncated=True)
    assert format_score(cut, token_scores=True) == "-0.2500\t1\ta:-0.2500\tab\n"


def test_long_lines_are_named(
    options: ScoreTargetsOptions, capfd: pytest.CaptureFixture[str]
) -> None:
    run(options, max_source_length=4, read_ahead=2)
    warnings = [line for line in capfd.readouterr().err.split("\n") if line.startswith("warning")]
    assert [warning.split(": ")[1] for warning in warnings] == [
        f"{options.input}:3",
        f"{options.target}:5",
    ]


@pytest.mark.parametrize(
    ("source", "target", "piped"), [(7, 5, False), (0, 7, False), (7, 5, True), (0, 7, True)]
)
def test_different_numbers_of_lines(
    options: ScoreTargetsOptions,
    tmp_path: Path,
    forked_nmt: Path,
    source: int,
    target: int,
    piped: bool,
) -> None:
    """Files are compared before the work, a pipe when one side ends."""
    for name, lines, count in (("source", SOURCE, source), ("target", TARGET, target)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines[:count]))
    name = "standard input" if piped else str(options.input)
    message = (
        f"{name} has {source} lines but {options.target} has {target}; line n of one file must"
    )
    if not piped:
        (tmp_path / "out").write_text("precious")
        with pytest.raises(DataError, match=re.escape(message)):
            score_targets(options)
        assert (tmp_path / "out").read_text() == "precious"
        return
    command = [forked_nmt, "score-targets", *options.checkpoints, "--device", "cpu"]
    command += ["--target", options.target, "--read-ahead", "2"]
    given = (tmp_path / "source").read_bytes()
    done = subprocess.run(command, input=given, capture_output=True, timeout=300, check=False)
    assert done.returncode == 1
    assert message in done.stderr.decode()
    assert b"perplexity" not in done.stderr


def test_the_targets_are_not_overwritten(
    options: ScoreTargetsOptions, nmt: Callable[..., Any]
) -> None:
    target = options.target
    code, _, err = nmt(
        "score-targets", *options.checkpoints, "-i", options.input, "--target", target, "-o", target
    )
    assert code == 2
    assert "also an input" in err
    assert target.read_text().split("\n")[:-1] == TARGET


def test_a_damaged_tree_is_named(
    options: ScoreTargetsOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task's error about a target has the file and the line."""

    def encode(line: str) -> list[int]:
        raise DataError("expected one tree on the line, found 2")

    translator = nmt_cli.load(options.checkpoints, device="cpu", read_ahead=2)
    monkeypatch.setattr(
        translator.task, "encode_target", lambda line: encode(line) if line == "de fa" else []
    )
    monkeypatch.setattr("nmt_cli.decoding.loading.load_translator", lambda *_, **__: translator)
    with pytest.raises(
        DataError, match=rf"^{re.escape(str(tmp_path))}/target:5: expected one tree"
    ):
        score_targets(replace(options, read_ahead=2))


def test_files_of_a_checkpoint_a_run_and_data_are_not_overwritten(
    options: ScoreTargetsOptions,
    nmt: Callable[..., Any],
    tiny_checkpoint: Path,
    tiny_data: Path,
    tmp_path: Path,
) -> None:
    (tmp_path / "metrics.jsonl").write_text("{}")
    (tmp_path / "hypotheses").write_text("old")
    files = (
        tiny_checkpoint / "task" / "task.json",
        tiny_data / "train.source.ids",
        tmp_path / "metrics.jsonl",
    )
    for place in (*files, tmp_path / "hypotheses"):
        before = place.read_bytes()
        code, _, err = nmt(
            "translate", *options.checkpoints, "--input", options.input, "--output", place
        )
        assert (code, place.read_bytes() == before, str(place) in err) == (
            (2, True, True) if place in files else (0, False, False)
        )
