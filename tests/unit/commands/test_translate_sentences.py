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
    """Return the lines of output of `nmt translate --split-sentences`, unless there is an error.

    And stderr.
    """

    def run(content: str, *flags: str, split: bool = True) -> tuple[list[str], str]:
        (tmp_path / "in").write_text(content, encoding="utf-8")
        common = ["--input", str(tmp_path / "in"), *"--device cpu --workers 1 --beam 2".split()]
        code, out, err = nmt(
            "translate", tiny_checkpoint, *common, *["--split-sentences"] * split, *flags
        )
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
    assert "in:2: the line or a part of it" in warning


def test_several_outputs_of_a_paragraph(translate: Callable[..., Any]) -> None:
    """The best is the same, and the scores are sums."""
    rows = [row.split("\t") for row in translate("abc. Hgf!\n", "--nbest", "2")[0]]
    parts = [row.split("\t") for row in translate("abc.\nHgf!\n", "--nbest", "2", split=False)[0]]
    assert rows[0][2] == f"{parts[0][2]} {parts[2][2]}"
    assert float(rows[0][1]) == pytest.approx(float(parts[0][1]) + float(parts[2][1]), abs=2e-4)
    assert float(rows[0][1]) > float(rows[1][1])


def test_tags_and_paragraphs(translate: Callable[..., Any]) -> None:
    """The tags of a line that is split are where they are in the sentences alone."""
    parts, _ = translate("<b>abc.</b>\n<i>Hgf</i> de!\n", "--markup", split=False)
    whole, _ = translate("<b>abc.</b> <i>Hgf</i> de!\n", "--markup")
    assert len(whole) == 1
    assert sorted(re.findall("<.*?>", whole[0])) == ["</b>", "</i>", "<b>", "<i>"]
    assert re.sub("<.*?>", "", whole[0]).split() == [
        word for part in parts for word in re.sub("<.*?>", "", part).split()
    ]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--prefix", "typed"), "--split-sentences cannot be used with prefixes"),
        (("--sentence-language", "German"), "not an ISO 639 code"),
    ],
)
def test_what_does_not_combine_is_refused(
    translate: Callable[..., Any],
    flags: tuple[str, ...],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("typed").write_text("a\n")
    code, err = translate("abc. de.", *flags)
    assert code == ["2"]
    assert message in " ".join(err.split())


@pytest.mark.parametrize("split", [False, True])
def test_what_is_longer_than_the_learned_positions_is_warned_of(
    split: bool, nmt: Run, make_checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    """Each sentence of the first line fits. Outputs have no more tokens than their lines."""
    folder = make_checkpoint(
        tmp_path / "learned", model={"positions": "learned", "max_positions": 7}
    )
    (tmp_path / "in").write_text("Abc. Abc.\nabc\nabcdefgh\n", encoding="utf-8")
    flags = [
        "--input",
        tmp_path / "in",
        "--device",
        "cpu",
        "--workers",
        1,
        "--max-length-offset",
        0,
    ]
    code, _, err = nmt("translate", folder, *flags, *["--split-sentences"] * split)
    assert code == 0, err
    numbers_warned = re.findall(r"in:(\d): .* longer than the 7 positions", err)
    assert numbers_warned == (["3"] if split else ["1", "3"])
