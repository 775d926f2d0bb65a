"""`nmt translate --split-sentences`, with a real model."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def translate(nmt: Run, tiny_checkpoint: Path, tmp_path: Path) -> Callable[..., Any]:
    """Return the lines of output of `nmt translate --split-sentences`, unless there is an error; and stderr."""

    def run(content: str, *flags: str, split: bool = True) -> tuple[list[str], str]:
        (tmp_path / "in").write_text(content, encoding="utf-8")
        common = ["--input", str(tmp_path / "in"), "--device", "cpu", "--workers", "1", "--beam", "2"]
        code, out, err = nmt("translate", tiny_checkpoint, *common, *["--split-sentences"] * split, *flags)
        return out.split("\n")[:-1] if code == 0 else [str(code)], err

    return run


def test_a_line_for_each_line_and_every_sentence_in_it(translate: Callable[..., Any]) -> None:
    sentences = ["abc.", "Hgf!", "de", "Abc."]
    alone, _ = translate("\n".join(sentences), split=False)
    lines = ["abc. Hgf!", "", "de", "abc.  Abc."]
    out, err = translate("\n".join(lines), "--read-ahead", "3")
    assert out == [f"{alone[0]} {alone[1]}", "", alone[2], f"{alone[0]}  {alone[3]}"]
    assert err.startswith("translated 4 lines in ")


def test_a_sentence_that_is_too_long_is_named(translate: Callable[..., Any]) -> None:
    _, err = translate("ab. " * 9 + "\n" + "abcdefgh" * 3 + ". ab.", "--max-source-length", "8")
    (warning,) = [line for line in err.split("\n") if line.startswith("warning")]
    assert "in:2: a sentence is longer than 8 tokens; the rest of it is not translated" in warning


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--nbest", "2"), "--nbest"),
        (("--prefix", "typed"), "--prefix"),
        (("--sentence-language", "German"), "not an ISO 639 code"),
    ],
)
def test_what_does_not_combine_is_refused(translate: Callable[..., Any], flags: tuple[str, ...], message: str) -> None:
    code, err = translate("abc. de.", *flags)
    assert code == ["2"]
    assert message in " ".join(err.split())


@pytest.mark.parametrize("split", [False, True])
def test_what_is_longer_than_the_learned_positions_is_warned_of(
    split: bool, nmt: Run, make_checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    """Each sentence of the first line fits. Outputs have no more tokens than their lines."""
    folder = make_checkpoint(tmp_path / "learned", model={"positions": "learned", "max_positions": 7})
    (tmp_path / "in").write_text("Abc. Abc.\nabc\nabcdefgh\n", encoding="utf-8")
    flags = ["--input", tmp_path / "in", "--device", "cpu", "--workers", 1, "--max-length-offset", 0]
    code, _, err = nmt("translate", folder, *flags, *["--split-sentences"] * split)
    assert code == 0, err
    found = re.findall(r"in:(\d): .* longer than the 7 positions", err)
    assert found == (["3"] if split else ["1", "3"])
