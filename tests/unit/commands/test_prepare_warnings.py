"""Warnings of `nmt prepare` about its text, and the preset that it names."""

from __future__ import annotations

from pathlib import Path

import pytest
from prepare_command import run

from nmt_cli.commands.prepare import _fitting_preset
from nmt_cli.tasks.translation import TranslationConfig, TranslationTask

PREPARE = ("prepare", "--source-lang", "en", "--target-lang", "de", "--subwords", "character", "--workers", "1")


def write(folder: Path, name: str, *pairs: tuple[str, str]) -> str:
    for side, language in enumerate(("en", "de")):
        (folder / f"{name}.{language}").write_text("".join(f"{pair[side]}\n" for pair in pairs), encoding="utf-8")
    return str(folder / name)


def test_pairs_that_are_no_translations(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    prefix = write(tmp_path, "text", ("one", "eins"), ("", "leer"), ("so", "so"), ("so", "so"), (" ", ""))
    assert run([*PREPARE, "--train", prefix, "--test", prefix, "--out", str(tmp_path / "data")]) == 0
    warnings = [line for line in capfd.readouterr().err.splitlines() if line.startswith("warning")]
    assert warnings == [
        f"warning: {prefix}.en:2: in 2 of 5 test pairs a side is empty, and they are scored, too",
        f"warning: {prefix}.en:3: in 2 of 5 test pairs the target is the source, and they are scored, too",
        "warning: 3 of 5 test source lines are also training text",
    ]
    both = f"{prefix}.en"
    words = ["--train-source", both, "--train-target", both, "--out", str(tmp_path / "same")]
    assert run([*PREPARE, *words]) == 0
    assert "warning: in all training pairs the target is the source\n" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("tokens", "flag"),
    [
        (4_000, " --preset quickstart"),
        (400_000, " --preset multi30k"),  # Multi30k has 417,557
        (2_500_000, " --preset pairs_100k"),
        (130_000_000, " --preset transformer_base"),  # about WMT 2014's
    ],
)
def test_the_preset_of_the_hint_fits_the_text(tokens: int, flag: str) -> None:
    assert _fitting_preset(TranslationTask(TranslationConfig()), tokens) == flag
