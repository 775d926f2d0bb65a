"""`nmt translate` and `nmt score-targets` under torchrun: the output of one process, in parts."""

from __future__ import annotations

import gzip
import itertools
import json
import random
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

NAMES = ["one", "two", "three", "four", "five", "seventeen", "twenty-one", "one hundred"]
WINDOW = ("--read-ahead", 4, "--device", "cpu")  # 25 windows of the input


@pytest.fixture
def text(tmp_path: Path) -> Path:
    """Lines, some of them empty, too long or not UTF-8."""
    chance = random.Random(1)
    lines = [
        " ".join(chance.choices(NAMES, k=chance.choice([0, 1, 1, 2, 3, 12]))) for _ in range(100)
    ]
    lines[50] += "\udcff"
    (tmp_path / "text.gz").write_bytes(
        gzip.compress("\n".join(lines).encode(errors="surrogateescape"))
    )
    return tmp_path / "text.gz"


def remains(folder: Path) -> list[Path]:
    """Parts that are left."""
    return [path for directory in folder.glob(".*.parts") for path in directory.iterdir()]


def messages(started: list[Any]) -> list[str]:
    """The error messages of all processes."""
    return [
        line for process in started for line in process.err.split("\n") if line.startswith("nmt: ")
    ]


def summary(err: str) -> list[str]:
    """The messages, without the speed. The order of warnings may differ."""
    return sorted(line.partition(" in ")[0] for line in err.splitlines())


@pytest.mark.parametrize(
    ("ranks", "flags"),
    [
        (4, ("--format", "json", "--max-source-length", 8, "--prefix", "PREFIX")),
        (2, ("--sample", "--seed", 3, "--nbest", 2, "--workers", 2, "--alignments", "LINKS")),
    ],
)
def test_several_processes_translate_as_one(
    forks: Any,
    start_ranks: Callable[..., Any],
    model: Path,
    text: Path,
    tmp_path: Path,
    ranks: int,
    flags: Any,
) -> None:
    (tmp_path / "prefix").write_text("ein\n\n" * 50)
    names = {"PREFIX": tmp_path / "prefix", "LINKS": tmp_path / "links"}
    command = (
        "translate",
        model,
        "--input",
        text,
        *WINDOW,
        *(names.get(flag, flag) for flag in flags),
    )
    alone = forks.start(*command, "--output", tmp_path / "alone.gz")
    alone.code(0)
    links = names["LINKS"].read_bytes() if names["LINKS"].exists() else None
    names["LINKS"].unlink(missing_ok=True)
    started = start_ranks(ranks, *command, "--output", tmp_path / "out.gz")
    assert [process.code() for process in started] == [0] * ranks
    assert gzip.decompress((tmp_path / "out.gz").read_bytes()) == gzip.decompress(
        (tmp_path / "alone.gz").read_bytes()
    )
    assert links == (names["LINKS"].read_bytes() if names["LINKS"].exists() else None)
    assert summary(started[0].err) == summary(alone.err)
    assert [process.err for process in started[1:]] == [""] * (ranks - 1)
    expected = {"alone.gz", "out.gz", "prefix", "text.gz"} | ({"links"} if links else set())
    assert {path.name for path in tmp_path.iterdir()} == expected


def test_several_processes_score_as_one(
    forks: Any, start_ranks: Callable[..., Any], model: Path, text: Path, tmp_path: Path
) -> None:
    command = ("score-targets", model, "--input", text, "--target", text, *WINDOW)
    alone = forks.start(*command, "--output", tmp_path / "alone")
    alone.code(0)
    for process in (started := start_ranks(2, *command, "--output", tmp_path / "out")):
        process.code(0)
    assert (tmp_path / "out").read_text() == (tmp_path / "alone").read_text()
    assert summary(started[0].err) == summary(alone.err)  # with the perplexity


def test_a_rank_is_killed_and_finished_parts_are_kept(
    forks: Any, start_ranks: Callable[..., Any], model: Path, text: Path, tmp_path: Path
) -> None:
    """The same command goes on with another number of processes.

    With other flags, it begins anew.
    """
    alone, out = tmp_path / "alone", tmp_path / "out"
    command = ("translate", model, "--input", text, *WINDOW)
    forks.start(*command, "--output", alone).code(0)
    started = start_ranks(3, *command, "--output", out, poison="dies_translating")
    assert [process.code() for process in started] == [1, -signal.SIGKILL, 1]
    (message,) = messages(started)
    assert "another rank failed" in message
    assert not out.exists()
    assert len(remains(tmp_path)) == 17  # the killed rank has the first of its nine
    for part in remains(tmp_path):  # marks, which show where an output is from
        part.write_text(json.dumps([["marked\n"], *json.loads(part.read_text())[1:]]))
    for process in start_ranks(2, *command, "--beam", 2, "--output", out):
        process.code(0)
    assert "marked" not in out.read_text()
    assert len(remains(tmp_path)) == 17
    for process in (again := start_ranks(2, *command, "--output", out)):
        process.code(0)
    expected = alone.read_text().splitlines()
    outputs = iter(out.read_text().splitlines())
    for number in range(1, 26):
        lines = (
            expected[4 * number - 4 : 4 * number] if number % 3 == 1 and number > 1 else ["marked"]
        )
        assert list(itertools.islice(outputs, len(lines))) == lines
    assert "translated 100 lines" in again[0].err
    assert remains(tmp_path) == []


def test_processes_need_files_that_they_share(
    start_ranks: Callable[..., Any], model: Path, text: Path
) -> None:
    started = start_ranks(2, "translate", model, "--input", text, *WINDOW)
    assert started[0].code() == 2
    started[1].send(signal.SIGTERM)  # as torchrun does
    started[1].code()
    (message,) = messages(started)
    assert "--input FILE and --output FILE" in message
