"""Symbols and tags: in `nmt prepare`, and in translation."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import table_text
import torch
from table_text import LANGUAGES, TABLE, read, run

import nmt_cli
from nmt_cli.data.corpus import Corpus
from nmt_cli.decoding.beam_search import restrict
from nmt_cli.decoding.options import SearchSettings, TranslateOptions
from nmt_cli.errors import UsageError
from nmt_cli.files import parallel_text


@pytest.fixture
def text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(parallel_text, "BLOCK", 7)
    monkeypatch.chdir(tmp_path)
    table_text.write(tmp_path)
    return tmp_path


def test_columns_of_tags_become_symbols(text: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(*TABLE, "--tags", "3,5", "--lowercase", "--moses", "--out", "d") == 0
    task, sources, targets = read("d")
    assert task.symbols == ["<PST>", "<V>", '<news">']
    assert all(source[:3] == ["<V>", "<PST>", '<news">'] for source in sources)
    assert not set(task.symbols) & {piece for target in targets for piece in target}
    assert task.decode_target(task.encode_target("Der Hund"), "") == "der hund"
    Path("t.tsv.gz").write_bytes(gzip.compress(Path("t.tsv").read_bytes()))
    Path("t.tsv").unlink()
    assert run(*TABLE, "--tags", "3,5", "--subwords-from", "d", "--out", "e") == 0
    adopted, again, _ = read("e")
    assert (adopted.symbols, again) == (task.symbols, sources)
    assert not task.difference(adopted)
    assert run(*LANGUAGES, "--train", "a", "--subwords-from", "d", "--out", "f") == 0
    Path("u.tsv").write_text("1\tder Hund\tV;FUT\tthe dog\tx\n", encoding="utf-8")
    assert (
        run("--train", "u.tsv", *TABLE[2:], "--tags", "3", "--subwords-from", "d", "--out", "g")
        == 2
    )
    assert "--tags: <FUT> " in capfd.readouterr().err


def test_tags_that_no_training_line_has_are_left_out(
    text: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    Path("u.tsv").write_text("1\tder Hund\tV;FUT\tthe dog\tx\n", encoding="utf-8")
    assert run(*TABLE, "--tags", "3", "--valid", "u.tsv@<PST>", "--out", "d") == 0
    assert Corpus.open(Path("d"), "valid").raw_lines("source") == ["<PST> <V> the dog"]
    assert "warning: --tags: 1 left out, " in capfd.readouterr().err


def test_parts_have_their_tags(text: Path) -> None:
    symbols = ("--symbols", "<2de>,<bt>")
    named = ("--train-source", "a.de", "--train-target", "a.en@<2de> <bt>*2", "--keep-duplicates")
    assert (
        run(*LANGUAGES, *symbols, "--train", "a@<bt>", *named, "--valid", "a@<2de>", "--out", "d")
        == 0
    )
    task, sources, _ = read("d")
    assert (
        len(task.source_tokens(range(task.source_vocabulary_size)))
        == task.source_vocabulary_size
        <= 90
    )
    assert [source[0] for source in sources] == ["<bt>"] * 100 + ["<2de>"] * 100
    assert {source[1] for source in sources[100:]} == {"<bt>"}
    corpus = Corpus.open(Path("d"), "train")
    assert [part[:3] for part in corpus.parts] == [(0, 100, 1), (100, 200, 2)]
    assert Corpus.open(Path("d"), "valid").raw_lines("source")[0] == "<2de> the dog sees 0 cats"


def test_tags_do_not_count_in_the_length(text: Path) -> None:
    rows = "".join(f"a{n}\tb{n}\tV;PST;ACT;IND;SG\n" for n in range(100))
    Path("short.tsv").write_text(rows, encoding="utf-8")
    assert run("--train", "short.tsv", "--tags", "3", "--subwords", "character", "--out", "d") == 0
    assert json.loads(Path("d/manifest.json").read_text())["splits"]["train"]["dropped"] == {}


def test_filters_see_no_tags(text: Path) -> None:
    Path("g.tsv").write_text(
        "".join(f"\u03b1\u03b2 {n}\tb{n}\n" for n in range(100)), encoding="utf-8"
    )
    Path("v.tsv").write_text("\u03b1\u03b2 7\tb\n", encoding="utf-8")
    filters = ("--scripts", "Grek,Latn", "--drop-matching", "[<x]", "--drop-held-out")
    tagged = ("--train", "g.tsv@<xyz>", "--valid", "v.tsv@<ab>", "--symbols", "<xyz>,<ab>")
    assert run(*tagged, *filters, "--subwords", "character", "--out", "d") == 0
    assert json.loads(Path("d/manifest.json").read_text())["splits"]["train"]["dropped"] == {
        "held-out source": 1
    }


NINETY = ",".join(f"<{number}>" for number in range(90))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--train", "t.tsv", "--tags", "0"], "--tags 0: expected .*3,4"),
        (["--train", "bad.tsv", "--tags", "3"], "bad.tsv:2: <x y> cannot be a tag: it has a space"),
        (["--train", "t.tsv@<x>"], "t.tsv@<x>: <x> is no symbol. There are none;.*--symbols"),
        (["--train", "t.tsv@<x>", "--symbols", "<y>"], "<x> is no symbol. The symbols are <y>"),
        (["--train", "t.tsv", "--symbols", "<a>,<a>"], "--symbols: '<a>' cannot be one"),
        ([*TABLE, "--symbols", NINETY], "no place for words beside 90"),
    ],
)  # fmt: skip
def test_what_does_not_fit(
    text: Path, capfd: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    Path("bad.tsv").write_text("a\tb\tV\na\tb\tx y\n", encoding="utf-8")
    assert run(*words, "--out", "d") in (1, 2)
    error = capfd.readouterr().err
    assert re.search(message, error), error
    assert not Path("d").exists()


@pytest.mark.parametrize("last", [0, 2])
def test_symbols_are_not_generated(last: int) -> None:
    scores = torch.zeros(3, 9)
    restrict(scores, 1, SearchSettings(never_generated=last), None)
    assert scores.isinf().nonzero()[:, 1].unique().tolist() == [0, 1, 2, *range(9 - last, 9)]


def test_a_tag_is_text_before_each_line(
    make_checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    folder = make_checkpoint(tmp_path / "checkpoint", symbols="<x>,<y>")
    plain, tagged = nmt_cli.load(folder), nmt_cli.load(folder, tag="<y> <x>")
    lines = ["abc", "", "cab ba"]
    written = [f"<y> <x> {line}" if line else "" for line in lines]
    assert (
        tagged.translate(lines) == plain.translate(written) == plain.translate(lines, tag="<y> <x>")
    )
    scores: list[Any] = [
        translator.score_targets(given, lines)
        for translator, given in ((tagged, lines), (plain, written))
    ]
    assert scores[0][0].token_scores == scores[1][0].token_scores
    assert scores[0][0].token_scores != plain.score_targets(lines, lines)[0].token_scores
    (translation,) = plain.translate_detailed(["<x> ab c"], align=True)
    (other,) = tagged.translate_detailed(["ab c"], align=True)
    assert all(i in (0, 1) for i, _ in other.outputs[0].alignment)
    assert all(i in (0, 1, 2) for i, _ in translation.outputs[0].alignment)
    marked = "a <b>b</b> ab <i>c b</i> a"
    assert tagged.translate([marked], markup=True) == plain.translate(
        [f"<y> <x> {marked}"], markup=True
    )
    with pytest.raises(UsageError, match=r"--tag <z>: .*<x>, <y>"):
        plain.translate(lines, tag="<z>")
    assert TranslateOptions().settings(plain.task).never_generated == 2


def test_a_tag_before_nothing_is_nothing(
    make_checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    """The task reads nothing in invisible characters."""
    tagged = nmt_cli.load(make_checkpoint(tmp_path / "checkpoint", symbols="<a>"), tag="<a>")
    assert tagged.task.encode_source("\u2060\u2060") == []
    symbol, *ids = tagged.task.encode_source("b\u2060")
    assert tagged.task.source_tokens([symbol]) == ["<a>"]
    assert ids == tagged.engine.task.encode_source("b")
