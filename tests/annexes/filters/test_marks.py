"""Warnings of marks of other programs in text."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest
from prepare_command import PREPARE, run

ROWS = [
    ('He said: "Hi!"', "Er sagte: „Hi!“"),
    ('"No."', '"Nein."'),
    *((f"No. {n}!", f"Nr. {n}!") for n in range(8)),
]
QUOTED = ": 2 of the first 11 lines have a cell in quotation marks"
HEADER = ":1: ['English', 'German (de)'] look like names of columns"


@pytest.mark.parametrize(
    ("rows", "quoting", "expected"),
    [
        # As spreadsheets save it.
        (
            [("English", "German (de)"), *ROWS],
            csv.QUOTE_MINIMAL,
            [QUOTED, HEADER],
        ),
        (ROWS, csv.QUOTE_ALL, [": 10 of the first 10 lines have a cell in quotation marks"]),
        (ROWS[2:], csv.QUOTE_MINIMAL, []),
        (
            [("Hi", "Hallo"), ("dog", "Hund"), ('"well"', '"so"'), ("cat", "Katze")],
            csv.QUOTE_NONE,
            [],
        ),
    ],
)
def test_tables_of_spreadsheets(
    rows: list[tuple[str, str]],
    quoting: Any,
    expected: list[str],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    table = tmp_path / "TABLE.TSV"
    with table.open("w", encoding="utf-8-sig", newline="") as file:
        csv.writer(
            file,
            delimiter="\t",
            quoting=quoting,
            quotechar=None if quoting == csv.QUOTE_NONE else '"',
        ).writerows(rows)
    assert run([*PREPARE, "--train", str(table), "--out", str(tmp_path / "data")]) == 0
    warnings = [line for line in capfd.readouterr().err.splitlines() if line.startswith("warning")]
    assert len(warnings) == len(expected)
    for warning, text in zip(warnings, expected, strict=True):
        assert warning.startswith(f"warning: {table}{text}")


@pytest.mark.parametrize(
    ("mark", "advice"), [("Ka@@ ter", "join"), ("a @-@ b", "detokenize"), ("a\rb", "line feeds")]
)
def test_marks_of_other_programs_are_warned_about_once_a_file(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], mark: str, advice: str
) -> None:
    source = [f"the dog sees {number} cats" for number in range(299)]
    target = [
        f"der Hund {number} {mark}" if number % 3 == 1 else f"der Hund {number}"
        for number in range(300)
    ]
    for language, lines in (("en", [*source, f"one {mark}"]), ("de", target)):
        (tmp_path / f"train.{language}").write_text(
            "".join(f"{line}\n" for line in lines), encoding="utf-8"
        )
    assert run([*PREPARE, "--train", str(tmp_path / "train"), "--out", str(tmp_path / "data")]) == 0
    (warning,) = [
        line for line in capfd.readouterr().err.splitlines() if line.startswith("warning: ")
    ]
    assert "train.de:2: 100 of the first 300 lines" in warning
    assert advice in warning
