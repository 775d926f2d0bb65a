"""`nmt translate --split-sentences`, with a real model."""

from __future__ import annotations

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
