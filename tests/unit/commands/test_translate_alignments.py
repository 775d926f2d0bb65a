"""`nmt translate --alignments`: the links of words, in a file beside the output."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

import nmt_cli
from nmt_cli.commands.translate import translate
from nmt_cli.commands.translate_options import TranslateCommandOptions
from nmt_cli.decoding.options import TranslateOptions
from nmt_cli.errors import UsageError


def written(
    checkpoint: Path, folder: Path, content: bytes, options: dict[str, Any], **flags: Any
) -> bytes:
    """The output for an input, with links in `folder`/links.gz."""
    given = {"beam": 2, "max_length_offset": 3, "alignments": folder / "links.gz", **options}
    chosen = TranslateOptions().replaced(given)
    (folder / "in").write_bytes(content)
    flags = {"quiet": True, "device": "cpu", **flags}
    files: dict[str, Any] = {
        "checkpoints": (checkpoint,),
        "input": folder / "in",
        "output": folder / "out",
    }
    translate(TranslateCommandOptions(translation=chosen, **{**files, **flags}))
    return (folder / "out").read_bytes()


@pytest.mark.parametrize("nbest", [1, 2])
def test_alignments_are_a_line_for_each_output(
    tiny_checkpoint: Path, tmp_path: Path, nbest: int
) -> None:
    """Those of the API, compressed by the name.

    An empty line has none. The outputs do not change.
    """
    lines = ["abc  de", "", "hg", "fgh a b" * 9]
    content = "\n".join(lines).encode() + b"\n"
    options: Any = {"nbest": nbest, "max_source_length": 20}
    with_links = written(tiny_checkpoint, tmp_path, content, options)
    assert with_links == written(
        tiny_checkpoint, tmp_path, content, {**options, "alignments": None}
    )
    written_links = gzip.decompress((tmp_path / "links.gz").read_bytes()).decode().split("\n")
    translator = nmt_cli.load(tiny_checkpoint, device="cpu")
    details = list(
        translator.translate_detailed(lines, align=True, beam=2, max_length_offset=3, **options)
    )
    outputs = [output for translation in details for output in translation.outputs]
    assert written_links == [
        *(" ".join(f"{i}-{j}" for i, j in output.alignment) for output in outputs),
        "",
    ]
    assert written_links[0]
    assert written_links[nbest] == ""
    for translation in details:
        for output in translation.outputs:
            assert [j for _, j in output.alignment] == list(range(len(output.text.split())))
            assert all(i < len(translation.source.split()) for i, _ in output.alignment)


def test_alignments_do_not_depend_on_workers(tiny_checkpoint: Path, tmp_path: Path) -> None:
    outputs = []
    for workers in (1, 2):
        written(tiny_checkpoint, tmp_path, b"abc de\nhg\nfgh a b\nde\n" * 10, {}, workers=workers)
        outputs.append(gzip.decompress((tmp_path / "links.gz").read_bytes()))
    assert outputs[0] == outputs[1]
    assert outputs[0].count(b"\n") == 40


@pytest.mark.parametrize(
    ("options", "flags", "message"),
    [
        ({"markup": True}, {}, "--alignments cannot be used with --markup"),
        (
            {},
            {"interactive": True, "input": None, "output": None},
            "--interactive .* inputs and outputs",
        ),
    ],
)
def test_alignments_that_cannot_be(
    tiny_checkpoint: Path,
    tmp_path: Path,
    options: dict[str, Any],
    flags: dict[str, Any],
    message: str,
) -> None:
    with pytest.raises(UsageError, match=message):
        written(tiny_checkpoint, tmp_path, b"abc\n", options, **flags)
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_the_links_are_not_the_output_under_another_name(
    tiny_checkpoint: Path, tmp_path: Path
) -> None:
    """Neither is there yet, and the later one would replace the other."""
    (tmp_path / "link").symlink_to("out")
    for other in (tmp_path / "link", tmp_path / ".." / tmp_path.name / "out"):
        with pytest.raises(UsageError, match="is also the output"):
            written(tiny_checkpoint, tmp_path, b"abc\n", {"alignments": other})
    assert not (tmp_path / "out").exists()
