"""`nmt prepare` with tables and named files."""

from __future__ import annotations

import gzip
import re
import sys
from pathlib import Path

import pytest
import table_text
from table_text import LANGUAGES, TABLE, run

from nmt_cli.files import parallel_text


@pytest.fixture
def text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(parallel_text, "BLOCK", 7)
    monkeypatch.chdir(tmp_path)
    table_text.write(tmp_path)
    return tmp_path


def test_a_table_and_named_files_have_the_pairs_of_a_prefix(text: Path) -> None:
    assert run(*LANGUAGES, "--train", "a", "--valid", "a", "--out", "d1") == 0
    assert run(*TABLE, "--valid", "t.tsv", "--out", "d2") == 0
    named = (
        *"--train-source a.en --train-target a.de --valid-source a.en".split(),
        *"--valid-target a.de".split(),
    )
    assert run("--source-lang", "x", "--target-lang", "x", *named, "--out", "d3") == 0
    files = sorted(path.name for path in Path("d1").glob("*.*.*"))
    assert len(files) == 10
    for folder in ("d2", "d3"):
        assert [Path(folder, name).read_bytes() for name in files] == [
            Path("d1", name).read_bytes() for name in files
        ]


def test_a_table_on_standard_input(text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("t.tsv.gz").write_bytes(gzip.compress(Path("t.tsv").read_bytes()))
    columns = ("--columns", "source=4,target=2")
    assert run("--train", "t.tsv*2", *columns, "--out", "new/d1") == 0
    with open("t.tsv.gz", encoding="utf-8") as stream:
        monkeypatch.setattr(sys, "stdin", stream)
        assert run("--train", "-*2", *columns, "--out", "new/d2") == 0
        assert run("--train", "-", "--train", "-", "--out", "d3") == 2
        for place in (".", "new/..", "/"):  # names that are not the directory's
            assert run("--train", "-", *columns, "--out", place) == 2
        Path("new/.d4.stdin.tsv").write_text("mine")
        Path("new/.d4.nmt-stdin.tsv").symlink_to(".d4.stdin.tsv")
        assert run("--train", "-", *columns, "--out", "new/d4") == 2
    assert Path("new/.d4.stdin.tsv").read_text() == "mine"
    assert (
        Path("new/d2/train.source.ids").read_bytes() == Path("new/d1/train.source.ids").read_bytes()
    )
    assert sorted(path.name for path in Path("new").iterdir()) == [
        ".d4.nmt-stdin.tsv",
        ".d4.stdin.tsv",
        "d1",
        "d2",
    ]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--train", "t.tsv", "--columns", "source=1,target=9"], "t.tsv:1: .* 9 .*--columns"),
        (["--train", "t.tsv", "--columns", "1,2"], "--columns 1,2: expected .*source=2,target=5"),
        (["--train", "none.tsv"], "none.tsv: no such file, nor a compressed one"),
        (["--train-source", "a.en"], "--train-source and --train-target belong together"),
        (["--valid-source", "a.en", "--train", "t.tsv"], "--valid-source and --valid-target"),
        (
            [*"--train t.tsv --valid t.tsv --valid-source a.en --valid-target a.de".split()],
            "contradict",
        ),
        (["--valid", "t.tsv"], "there is no training text: give --train PREFIX, or --train-source"),
        (["--train", "a", *"--source-lang en --target-lang en".split()], "or --train-source"),
    ],
)  # fmt: skip
def test_what_does_not_fit(
    text: Path, capfd: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    assert run(*words, "--out", "d") in (1, 2)
    error = capfd.readouterr().err
    assert re.search(message, error), error
    assert not Path("d").exists()
