"""SIGKILL to each command that writes, at any change of a file: run again, the same output."""

from __future__ import annotations

import random
import re
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nmt_cli.annexes.doctor.resume import contents

FAIRSEQ = Path(__file__).resolve().parent.parent / "annexes" / "exchange" / "fairseq" / "tiny"
KILLS = {
    "prepare": 100,
    "average": 50,
    "translate": 60,
    "score-targets": 50,
    "attention": 40,
    "report": 40,
}
KILLS |= {"export": 20, "import": 40, "rerank": 80, "recipes": 80}
"""How often each command is killed by make faults."""

LEFT = re.compile(r"\.out\.[0-9a-f]{12}\.nmt-part")


@pytest.fixture
def words(whole: Path, tiny_data: Path, tmp_path: Path) -> Callable[[str, Path], list[Any]]:
    """The words of each command, whose output is the path given."""
    text = tiny_data.parent / "train"
    lines = tmp_path / "lines"
    lines.write_text("one hundred\ntwo\n\nthree\n" * 20)
    nbest = tmp_path / "nbest"
    nbest.write_text(
        "".join(f"{number}\t-1.0\teins\n{number}\t-2.0\tzwei\n" for number in range(1, 50))
    )
    quick = ("--device", "cpu", "--max-length-offset", 2)
    commands: dict[str, list[Any]] = {
        "prepare": [
            "prepare",
            "--train",
            text,
            *"--source-lang en --target-lang de --vocab-size 100".split(),
        ],
        "average": ["average", whole, "--last", 2],
        "translate": ["translate", whole, "--input", lines, "--read-ahead", 4, *quick],
        "score-targets": [
            "score-targets",
            whole,
            "--input",
            lines,
            "--target",
            lines,
            "--device",
            "cpu",
        ],
        "attention": ["attention", whole, "--input", lines, "--device", "cpu"],
        "report": ["report", whole, "--sentences", 4, "--examples", 1, "--device", "cpu"],
        "export": ["export", whole, "--to", "huggingface"],
        "import": ["import", FAIRSEQ / "checkpoint_best.pt", "--subwords", FAIRSEQ / "bpe.codes"],
        "rerank": ["rerank", "--input", nbest, "--mbr", "chrf"],
        "recipes": ["recipes"],
    }
    to_file = ("translate", "score-targets", "rerank")
    return lambda command, out: [
        *commands[command],
        "--output" if command in to_file else "--out",
        out,
    ]


@pytest.mark.parametrize("command", KILLS)
def test_the_same_command_completes_the_output(
    forks: Any, words: Callable[[str, Path], list[Any]], tmp_path: Path, rounds: Any, command: str
) -> None:
    """A second output is refused only if it is complete.

    Beside it, at most an unfinished file is left.
    """
    folder = tmp_path / "folder"
    folder.mkdir()
    line = words(command, folder / "out")
    whole = forks.start(*line, watched=str(folder))
    whole.code(0)
    expected = contents(folder)
    for place in random.Random(2).choices(range(1, whole.changes + 1), k=rounds(1, KILLS[command])):
        shutil.rmtree(folder)
        folder.mkdir()
        forks.start(*line, watched=str(folder), kill_at=place).code(-signal.SIGKILL)
        again = forks.start(*line)
        assert again.code() in (0, 2), again.err  # 2: the output exists
        outputs = {
            name: content for name, content in contents(folder).items() if not LEFT.fullmatch(name)
        }
        assert outputs == expected, f"{command}, change {place} of {whole.changes}"
