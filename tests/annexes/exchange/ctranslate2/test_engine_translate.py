"""`nmt translate --engine ctranslate2`: the same command on another engine."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nmt_cli.annexes.exchange.ctranslate2 import engine as ctranslate2_engine
from nmt_cli.decoding import engine
from nmt_cli.decoding.engine import Loading

Run = Callable[..., tuple[int, str, str]]

LINES = b"abc\n\nhgfedcba\nab\xffc\n" + b"ab" * 30 + b"\n"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "in").write_bytes(LINES)
    return tmp_path / "in"


@pytest.mark.parametrize(
    "flags",
    [
        ["--beam", "1", "--workers", "2", "--read-ahead", "2", "--max-length", "5"],
        ["--beam", "1", "--max-source-length", "9"],
    ],
    ids=" ".join,
)
def test_the_output_is_that_of_nmt(
    nmt: Run, tiny_checkpoint: Path, tiny_export: Path, source: Path, flags: list[str]
) -> None:
    common = ["--input", source, "--device", "cpu", *flags]
    code, our_output, our_messages = nmt("translate", tiny_checkpoint, *common)
    assert code == 0
    code, their_output, their_messages = nmt(
        "translate", tiny_export, "--engine", "ctranslate2", *common
    )
    assert (code, their_output) == (0, our_output)
    *ours_before, our_summary = our_messages.splitlines()
    *theirs_before, their_summary = their_messages.splitlines()
    assert theirs_before == ours_before  # warnings
    assert their_summary.split(" in ")[0] == our_summary.split(" in ")[0]


def test_where_scores_are_shown_they_are_those_of_the_model(
    nmt: Run, tiny_export: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def recorded(loading: Loading) -> Any:
        asked.append(loading.scores)
        return ctranslate2_engine.load(loading)

    monkeypatch.setattr(engine, "find", lambda name: recorded)
    command = ("translate", tiny_export, "--engine", "ctranslate2", "--input", source)
    for more in ([], ["--nbest", "2"], ["--format", "tsv"]):
        assert nmt(*command, *more)[0] == 0
    code, out, _ = nmt(*command, "--format", "json")
    assert (code, asked) == (0, [False, True, True, True])
    for output in (
        output for row in map(json.loads, out.splitlines()) for output in row["outputs"]
    ):
        assert len(output["token_scores"]) >= len(output["tokens"])


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (["--prefix", "beginnings"], "--prefix"),
        (["--sample"], "--sample"),
        (["--markup"], "--markup"),
        (["--alignments", "links"], "--alignments"),
        (["--constrained"], "--constrained"),
    ],
)
def test_what_it_cannot_do_is_named(
    nmt: Run,
    tiny_export: Path,
    source: Path,
    flags: list[str],
    named: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(source.parent)
    Path("beginnings").write_bytes(LINES)
    code, out, err = nmt(
        "translate", tiny_export, "--engine", "ctranslate2", "--input", source, *flags
    )
    assert (code, out) == (2, "")
    assert named in err
    assert "engine" in err
    assert "Traceback" not in err
