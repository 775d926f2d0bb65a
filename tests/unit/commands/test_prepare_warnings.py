"""Warnings of `nmt prepare` about its text, and the preset that it names."""

from __future__ import annotations

import csv
import re
import subprocess
import textwrap
from pathlib import Path

import pytest
from prepare_command import PREPARE, run

from nmt_cli.commands.prepare import _fitting_preset
from nmt_cli.tasks.translation import TranslationConfig, TranslationTask


def write(folder: Path, name: str, *pairs: tuple[str, str]) -> str:
    for side, language in enumerate(("en", "de")):
        (folder / f"{name}.{language}").write_text(
            "".join(f"{pair[side]}\n" for pair in pairs), encoding="utf-8"
        )
    return str(folder / name)


def test_pairs_that_are_no_translations(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    prefix = write(
        tmp_path, "text", ("one", "eins"), ("", "leer"), ("so", "so"), ("so", "so"), (" ", "")
    )
    assert (
        run([*PREPARE, "--train", prefix, "--test", prefix, "--out", str(tmp_path / "data")]) == 0
    )
    warnings = [line for line in capfd.readouterr().err.splitlines() if line.startswith("warning")]
    assert warnings == [
        f"warning: {prefix}.en:2: in 2 of 5 test pairs a side is empty, and they are scored, too",
        f"warning: {prefix}.en:3: in 2 of 5 test pairs the target is the source, and they are "
        "scored, too",
        "warning: 3 of 5 test source lines are also training text",
    ]
    both = f"{prefix}.en"
    words = ["--train-source", both, "--train-target", both, "--out", str(tmp_path / "same")]
    assert run([*PREPARE, *words]) == 0
    assert "the target is the source\n" in capfd.readouterr().err


@pytest.mark.parametrize("name", ["export.csv", "export.xlsx", "deu.txt"])
def test_a_file_that_is_no_table(
    name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / name
    table.write_text("one,eins\n", encoding="utf-8")
    for more in ([], ["--source-lang", "en", "--target-lang", "de"]):
        assert run(["prepare", "--train", str(table), "--out", str(tmp_path / "data"), *more]) == 1
        expected = (
            f"nmt: {table}: expected a table whose name ends in .tsv, or the beginning of the "
            "names of two files"
        )
        assert expected in capfd.readouterr().err
    write(tmp_path, name, ("one", "eins"))
    assert run([*PREPARE, "--train", str(table), "--out", str(tmp_path / "data")]) == 0


def test_csv_is_converted_as_the_page_shows(tmp_path: Path) -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "prepare.md").read_text(encoding="utf-8")
    match = re.search(r"```\n(  python -c .*?)  ```", page, re.DOTALL)
    assert match is not None
    with (tmp_path / "export.csv").open("w", encoding="utf-8-sig", newline="") as file:
        csv.writer(file).writerows([("English", "German"), ('say "Hi",\nnow', "x\ty")])
    subprocess.run(textwrap.dedent(match[1]), shell=True, check=True, cwd=tmp_path)
    assert (tmp_path / "pairs.tsv").read_text(encoding="utf-8") == 'say "Hi", now\tx y\n'


def test_a_name_that_ends_as_a_weight(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    prefix = write(tmp_path, "star*3", ("one", "eins"))
    assert run([*PREPARE, "--train", prefix, "--out", str(tmp_path / "data")]) == 1
    assert f"Did you mean the prefix {prefix}*1?" in capfd.readouterr().err
    assert run([*PREPARE, "--train", f"{prefix}*1", "--out", str(tmp_path / "data")]) == 0


@pytest.mark.parametrize(
    ("tokens", "preset"),
    [
        (4_000, "quickstart"),
        (400_000, "multi30k"),  # Multi30k has 417,557
        (2_500_000, "pairs_100k"),
        (130_000_000, "transformer_base"),  # about WMT 2014's
    ],
)
def test_the_preset_of_the_hint_fits_the_text(tokens: int, preset: str) -> None:
    assert _fitting_preset(TranslationTask(TranslationConfig()), tokens) == ("--preset", preset)
