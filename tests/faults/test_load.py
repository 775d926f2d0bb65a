"""`nmt translate` under load: long streams and hostile lines."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

QUICK = ("--beam", 1, "--max-length-offset", 1, "--device", "cpu")
NAMES = [
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "twelve",
    "seventeen",
    "twenty-one",
]


def translated(forks: Any, model: Path, lines: list[str], folder: Path) -> tuple[list[str], int]:
    """The output lines, and the peak memory of the process in kB."""
    (folder / "in").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    started = forks.start("translate", model, "-i", folder / "in", "-o", folder / "out", *QUICK)
    started.code(0)
    return (folder / "out").read_text(encoding="utf-8").split("\n")[:-1], int(
        (started.folder / "peak").read_text()
    )


def test_a_long_stream_in_order_and_constant_memory(
    forks: Any, model: Path, tmp_path: Path, rounds: Any
) -> None:
    chance, many = random.Random(6), rounds(6_000, 100_000)
    lines = [" ".join(chance.choices(NAMES, k=chance.randint(0, 3))) for _ in range(many)]
    short, small = translated(forks, model, lines[: many // 3], tmp_path)
    long, large = translated(forks, model, lines, tmp_path)
    assert len(long) == many
    expected = dict(zip(lines, short, strict=False))
    assert all(text == expected.get(line, text) for line, text in zip(lines, long, strict=True))
    assert large < small + 20_000


HOSTILE = [
    b"x" * 100_000,
    b"one " * 25_000,
    bytes(range(256)).replace(b"\n", b""),
    b"",
    b"\xff\xfe\xfd",
    "\u2028 one\u0085two \ufeff".encode(),
    "\U0001f600\u200d".encode() * 500,
    b"</s> <s> <pad> <unk>",
    b"\r\r\r",
]


def test_hostile_lines_do_not_change_their_neighbours(
    forks: Any, model: Path, tmp_path: Path
) -> None:
    sound = [NAMES[i % len(NAMES)] for i in range(2 * len(HOSTILE))]
    expected, _ = translated(forks, model, sound, tmp_path)
    lines = [
        part
        for i, hostile in enumerate(HOSTILE)
        for part in (sound[2 * i].encode(), hostile, sound[2 * i + 1].encode())
    ]
    (tmp_path / "in").write_bytes(b"\n".join(lines) + b"\n")
    started = forks.start("translate", model, "-i", tmp_path / "in", "-o", tmp_path / "out", *QUICK)
    started.code(0)
    output_lines = (tmp_path / "out").read_bytes().decode("utf-8").split("\n")[:-1]
    assert len(output_lines) == len(lines)
    assert [text for i, text in enumerate(output_lines) if i % 3 != 1] == expected
    assert output_lines[3 * 3 + 1] == ""
