"""Parts of the results, which ranks leave for the first of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nmt_cli.annexes.parts import results
from nmt_cli.commands.translate_options import TranslateCommandOptions
from nmt_cli.commands.translate_streams import Totals
from nmt_cli.decoding.options import TranslateOptions
from nmt_cli.errors import NmtError, UsageError


def test_a_part_of_a_machine_that_does_not_share_the_directory(tmp_path: Path) -> None:
    with pytest.raises(NmtError, match=f"{tmp_path / '7'}: .* must see the same files"):
        results.read_part(tmp_path / "7", ranks=2)


def test_the_ranks_compute_their_parts_at_the_same_time(tmp_path: Path) -> None:
    """So the seconds of a part are divided by their number, and nothing else is."""
    totals = vars(Totals(lines=4, tokens=9, seconds=6.0, repaired=2))
    (tmp_path / "7").write_text(json.dumps([["text"], totals, ["careful"]]))
    texts, read, warnings = results.read_part(tmp_path / "7", ranks=3)
    assert (texts, warnings) == (["text"], ["careful"])
    assert read == Totals(lines=4, tokens=9, seconds=2.0, repaired=2)


def test_parts_are_of_the_files_as_they_are_now(tmp_path: Path) -> None:
    """The parts of a killed command are not joined with parts of another text or glossary."""
    names = "in", "prefixes", "words", "terms"
    source, prefixes, words, terms = (tmp_path / name for name in names)
    options = TranslateCommandOptions(
        checkpoints=(tmp_path / "model",),
        input=source,
        output=tmp_path / "out",
        prefix=prefixes,
        translation=TranslateOptions(glossary=terms, replace_unknown=True, dictionary=words),
    )
    folders = {results.parts_folder(options)}
    for number, name in enumerate(names, start=2):
        (tmp_path / name).write_text("cat\tKatze\n")
        folders.add(results.parts_folder(options))
        assert len(folders) == number
    assert results.parts_folder(options) in folders


def test_a_part_is_not_read_through_a_link(tmp_path: Path) -> None:
    """Nor is the directory of the parts, whose name can be foreseen."""
    (tmp_path / "forged").write_text('[["x\\n"], {"seconds": 1, "repairs": {}}, []]')
    (tmp_path / "7").symlink_to(tmp_path / "forged")
    with pytest.raises(UsageError, match="7: this is a link"):
        results.read_part(tmp_path / "7", ranks=2)
    options = TranslateCommandOptions(
        checkpoints=(tmp_path,), input=tmp_path / "in", output=tmp_path / "out"
    )
    parts = results.parts_folder(options)
    parts.symlink_to(tmp_path)
    with pytest.raises(UsageError, match="parts: this is a link"):
        results.parts_folder(options)
