"""`nmt translate --split-sentences`, with a real model."""

from __future__ import annotations

import json
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


def test_scores_are_sums_over_the_sentences(translate: Callable[..., Any]) -> None:
    alone, _ = translate("abc.\nhgf!", "--format", "json", split=False)
    first, second = (json.loads(line)["outputs"][0] for line in alone)
    (line,), _ = translate("abc. hgf!", "--format", "json")
    (whole,) = json.loads(line)["outputs"]
    assert json.loads(line)["source"] == "abc. hgf!"
    assert whole["score"] == pytest.approx(first["score"] + second["score"], abs=2e-4)
    assert whole["token_scores"] == pytest.approx(first["token_scores"] + second["token_scores"], abs=2e-4)
    ended = ["</s>"] * (len(first["token_scores"]) - len(first["tokens"]))
    assert whole["tokens"] == [*first["tokens"], *ended, *second["tokens"]]


def test_a_sentence_that_is_too_long_is_named(translate: Callable[..., Any]) -> None:
    _, err = translate("ab. " * 9 + "\n" + "abcdefgh" * 3 + ". ab.", "--max-source-length", "8")
    (warning,) = [line for line in err.split("\n") if line.startswith("warning")]
    assert "in:2: a sentence is longer than 8 tokens; the rest of it is not translated" in warning


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--nbest", "2"), "--nbest"),
        (("--attention", "page.html"), "--attention"),
        (("--prefix", "typed"), "--prefix"),
        (("--sentence-language", "German"), "not an ISO 639 code"),
    ],
)
def test_what_does_not_combine_is_refused(translate: Callable[..., Any], flags: tuple[str, ...], message: str) -> None:
    code, err = translate("abc. de.", *flags)
    assert code == ["2"]
    assert message in " ".join(err.split())


def test_the_language_alone_is_refused(translate: Callable[..., Any]) -> None:
    code, err = translate("abc. de.", "--sentence-language", "de", split=False)
    assert code == ["2"]
    assert "--split-sentences" in err
