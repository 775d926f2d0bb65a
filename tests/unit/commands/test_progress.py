"""Progress: a bar on a terminal, lines elsewhere, nothing on stdout."""

from __future__ import annotations

import re

import pytest

from nmt_cli.commands import progress


@pytest.mark.parametrize(
    ("total", "line"),
    [
        (4, r"reading: 25% done, [\d,]+ pairs/s, \d+ s left"),
        (0, r"reading: 100% done, [\d,]+ pairs/s, 0 s left"),
    ],
)
def test_lines_where_there_is_no_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, total: int, line: str
) -> None:
    monkeypatch.setattr(progress, "_LINE_EVERY", 0.0)
    with progress.stage("reading", total, "pairs") as advance:
        advance(1)
        advance(1)
    out, err = capsys.readouterr()
    assert out == ""
    first, _, last = err.splitlines()
    assert re.fullmatch(line, first)
    assert re.fullmatch(r"reading: done in \d+\.\d s, .*[\d,]+ pairs/s", last)


def test_few_lines_for_many_steps(capsys: pytest.CaptureFixture[str]) -> None:
    with progress.stage("reading", 10_000, "bytes") as advance:
        for _ in range(10_000):
            advance(1)
    assert re.fullmatch(r"reading: done in \d+\.\d s, \d+\.\d MB/s\n", capsys.readouterr().err)


def test_bar_on_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with progress.stage("reading", 4, "pairs") as advance:
        advance(4)
    out, err = capsys.readouterr()
    assert out == ""
    assert "reading" in err
    assert re.search(r"100%\S* done, \S*0:00:00\S* left", err)
