"""The parts of the benchmark of `nmt prepare` that measure nothing, and a run on a small text."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("matplotlib", reason="needs matplotlib: pip install .[bench]")

from benchmarks.prepare import PEER, family, growth, megabytes, prepare, repeated, speed_rows, write_corpus
from benchmarks.samples import Sample


def test_repeated_lines_differ() -> None:
    assert list(repeated(["a", "b"], 5)) == ["a", "b", "a 1", "b 1", "a 2"]


def test_memory_of_a_process_and_its_children() -> None:
    assert megabytes(os.getpid()) > 1
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert {os.getpid(), child.pid} <= set(family(os.getpid()))
        child.communicate(b"\n")
    assert megabytes(child.pid) == 0


def test_rows_compare_with_the_peer() -> None:
    samples = [
        Sample({"pairs": 10, "moses": moses}, system, 0, 10, seconds)
        for moses in (False, True)
        for system, seconds in ((PEER, 2.0), ("nmt, workers: 1", 4.0))
    ]
    rows = speed_rows(samples)
    assert [row[0] for row in rows] == [PEER, "nmt, workers: 1", PEER, "nmt, workers: 1, --moses"]
    assert rows[1][1:] == ["2.5 (2.5-2.5)", "0.5 (0.5-0.5)"]


def test_a_run(tmp_path: Path) -> None:
    for language in ("en", "de"):
        (tmp_path / f"text.{language}").write_text("".join(f"{i} {language} a\n" for i in range(30)))
    prefix = write_corpus(str(tmp_path / "text"), ("en", "de"), 70, tmp_path)
    assert (tmp_path / "70.de").read_text().splitlines()[-1] == "9 de a 2"
    run = prepare(prefix, ("en", "de"), tmp_path / "data", "--vocab-size", "30", "--workers", "1")
    assert {"reading train", "encoding train"} <= set(run.passes)
    assert run.seconds > run.passes["encoding train"]
    assert run.processor > 0
    assert run.megabytes > 1
    assert growth({70: run})["pairs"]["MB"][70].median == run.megabytes
    with pytest.raises(SystemExit, match="--vocab-size"):
        prepare(prefix, ("en", "de"), tmp_path / "other", "--vocab-size", "9999")
