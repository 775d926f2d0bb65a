"""`nmt translate --markup, --protect and --glossary`: the same outputs, with the spans in them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import nmt_cli
from nmt_cli.commands.translate import translate
from nmt_cli.commands.translate_options import TranslateCommandOptions
from nmt_cli.decoding.options import TranslateOptions
from nmt_cli.errors import DataError, NmtError, UsageError


def written(
    checkpoint: Path, folder: Path, content: str, options: dict[str, Any], **flags: Any
) -> list[str]:
    chosen = TranslateOptions().replaced({"beam": 2, "max_length_offset": 3, **options})
    (folder / "in").write_text(content)
    files: dict[str, Any] = {
        "checkpoints": (checkpoint,),
        "input": folder / "in",
        "output": folder / "out",
    }
    translate(
        TranslateCommandOptions(translation=chosen, quiet=True, device="cpu", **files, **flags)
    )
    return (folder / "out").read_text().split("\n")


def without_tags(line: str) -> str:
    return re.sub("<.*?>", "", line)


@pytest.mark.parametrize("workers", [1, 2])
def test_tags_are_put_into_the_outputs_of_the_text_alone(
    tiny_checkpoint: Path, tmp_path: Path, workers: int
) -> None:
    lines = ["<b>abc</b> de", "", "<i>hg <br/></i>", "fgh <a b='c'>a b</a>"] * 9
    output_lines = written(
        tiny_checkpoint, tmp_path, "\n".join(lines) + "\n", {"markup": True}, workers=workers
    )
    plain = written(
        tiny_checkpoint, tmp_path, "\n".join(map(without_tags, lines)) + "\n", {}, workers=workers
    )
    assert [without_tags(line) for line in output_lines] == plain
    assert len(set(plain)) > 2
    for line, output in zip([*lines, ""], output_lines, strict=True):
        assert sorted(re.findall("<.*?>", output)) == sorted(re.findall("<.*?>", line))


def test_each_of_several_outputs_has_what_is_protected_and_the_terms(
    tiny_checkpoint: Path, tmp_path: Path
) -> None:
    (tmp_path / "terms").write_text("abc\tXYZ\n")
    options: Any = {
        "protect": r"\d+:\d+",
        "glossary": str(tmp_path / "terms"),
        "beam": 3,
        "nbest": 3,
    }
    translator = nmt_cli.load(tiny_checkpoint, device="cpu", **options)
    line = "abc de 10:30 abc fg"
    (translation,) = translator.translate_detailed([line])
    assert translation.source == line
    assert len(translation.outputs) == 3
    for output in translation.outputs:
        assert output.text.count("XYZ") == 2
        assert output.text.count("10:30") == 1
    assert translator.translate([]) == []


@pytest.mark.parametrize(
    ("options", "flags", "error", "message"),
    [
        ({"protect": "("}, {}, UsageError, "no regular expression"),
        ({"glossary": "missing.tsv"}, {}, NmtError, "missing.tsv"),
        (
            {"markup": True},
            {"prefix": "prefixes"},
            UsageError,
            "--markup cannot be used with prefixes",
        ),
        (
            {"protect": "a", "alignments": "links"},
            {},
            UsageError,
            "--alignments cannot be used with --protect",
        ),
    ],
)
def test_what_cannot_be(
    tiny_checkpoint: Path,
    tmp_path: Path,
    options: dict[str, Any],
    flags: dict[str, Any],
    error: type,
    message: str,
) -> None:
    (tmp_path / "prefixes").write_text("a\n")
    flags = {name: tmp_path / file for name, file in flags.items()}
    with pytest.raises(error, match=message):
        written(tiny_checkpoint, tmp_path, "abc\n", options, **flags)


def test_a_glossary_names_its_line(tiny_checkpoint: Path, tmp_path: Path) -> None:
    (tmp_path / "terms").write_text("a\tb\nc\n")
    with pytest.raises(DataError, match="terms:2: expected a word, a tab"):
        written(tiny_checkpoint, tmp_path, "abc\n", {"glossary": str(tmp_path / "terms")})


@pytest.mark.parametrize("empty", ["", Path()])
def test_an_empty_glossary_is_none(tiny_checkpoint: Path, tmp_path: Path, empty: Any) -> None:
    plain = written(tiny_checkpoint, tmp_path, "abc\n", {})
    assert written(tiny_checkpoint, tmp_path, "abc\n", {"glossary": empty}) == plain
