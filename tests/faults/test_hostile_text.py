"""Hostile text files: each is read, or rejected by an error that names it."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fuzzing import fuzz, mangled, outcome, tampered
from hypothesis import given
from hypothesis import strategies as st

from nmt_cli import checkpoint, registry
from nmt_cli.annexes.around.guided_alignment import linked_pieces
from nmt_cli.annexes.around.unknown_words import read_dictionary
from nmt_cli.annexes.parsing.evalb_parameters import read_parameters
from nmt_cli.annexes.parsing.trees import clean, parse_trees, tree_line
from nmt_cli.annexes.symbols.task import TaggedLines
from nmt_cli.config import resolve
from nmt_cli.errors import DataError
from nmt_cli.files.nbest import read_nbest
from nmt_cli.files.parallel_text import Columns, read_parallel, read_table
from nmt_cli.files.text import read_lines
from nmt_cli.training.settings import TrainingConfig

TEXT = "Größe\nein Satz\n\u2028x\r\n".encode()


@fuzz(40, 250_000)
@given(
    content=st.one_of(
        st.binary(max_size=200), mangled(TEXT), mangled(gzip.compress(TEXT * 50, mtime=0))
    )
)
def test_text(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "text.gz"
    path.write_bytes(content)
    lines: list[str] = []
    if outcome(lambda: lines.extend(read_lines(path)), path) and not content.startswith(
        b"\x1f\x8b"
    ):
        plain = content.removeprefix(b"\xef\xbb\xbf").removesuffix(b"\n").replace(b"\r\n", b"\n")
        assert "\n".join(lines).encode() == plain.removesuffix(b"\r")


def test_a_gzip_bomb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line a thousand times as large as its file is rejected before it is read to its end."""
    monkeypatch.setattr("nmt_cli.files.text.LONGEST_LINE", 1 << 20)
    path, read = tmp_path / "bomb.gz", list[int]()
    path.write_bytes(gzip.compress(bytes(20 << 20)))
    with pytest.raises(DataError, match=r"bomb\.gz:1: "):
        list(read_lines(path, read.append))
    assert len(read) < 20  # blocks, of 80


BRACKETS = st.text(alphabet=st.sampled_from("() \n\tS NP\\|-=~é"), max_size=80).map(str.encode)


@fuzz(50, 200_000)
@given(content=st.one_of(BRACKETS, mangled(b"(TOP (S (NP-SBJ (NN cat)) (VP (VBD sat))))\n" * 2)))
def test_trees(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "trees.mrg"
    path.write_bytes(content)
    trees: list[Any] = []
    if outcome(lambda: trees.extend(parse_trees(read_lines(path), str(path))), path):
        for tree, _ in trees:
            cleaned = clean(tree)
            if cleaned is not None:
                (again,) = parse_trees([tree_line(cleaned)], "again")
                assert again.tree.words == cleaned.words


def test_a_tree_a_hundred_thousand_deep(tmp_path: Path) -> None:
    path = tmp_path / "deep.mrg"
    path.write_text("(S " * 100_000 + "(NN x)" + ")" * 100_000)
    ((tree, _),) = parse_trees(read_lines(path), str(path))
    cleaned = clean(tree)
    assert cleaned is not None
    assert cleaned.words == ["x"]


def table(path: Path) -> None:
    for block in read_table(path, Columns(1, 3)):
        tagged = TaggedLines(
            block.names, block.blocks, block.first, block.size, block, "<de>", (2,), None
        )
        assert len(list(tagged.lines())) == len(block)


def pair_of_files(path: Path) -> None:
    for block in read_parallel(path, path):
        assert len(list(block.lines())) == len(block)


FORMATS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "table": ("go\tV;PST\twent\n\nsee\tV;3;SG\tsees\r\n", table),
    "pair of files": ("ein Satz\n\n\u00a0x\n", pair_of_files),
    "n-best list": (
        "1\t-1.5\tein Satz\n1\t-2e3\tSätze\n2\t-0.0\t\n",
        lambda path: list(read_nbest(path)),
    ),
    "dictionary": ("a house\tein Haus\ndog\tHund\n", read_dictionary),
    "dictionary of terms": (
        "a house\tein Haus\ndog\tHund\n",
        lambda path: read_dictionary(path, True),
    ),
    "parameters of EVALB": (
        "DEBUG 0\nDELETE_LABEL TOP\nEQ_LABEL ADVP PRT\n#x\nCUTOFF_LEN 40\n",
        read_parameters,
    ),
}


@fuzz(20, 90_000)
@given(data=st.data())
@pytest.mark.parametrize("form", FORMATS)
def test_lines_of_a_format(tmp_path: Path, form: str, data: st.DataObject) -> None:
    original, read = FORMATS[form]
    path = tmp_path / "lines"
    characters = st.sampled_from(
        [*original, "\t", "\n", "\r", "\ufeff", "\u2028", "0", "-", "nan", "9" * 400]
    )
    path.write_bytes(
        data.draw(
            mangled(original.encode()) | st.lists(characters).map(lambda c: "".join(c).encode())
        )
    )
    outcome(lambda: read(path), path)


@fuzz(20, 5000)
@given(
    line=mangled(b"one hundred\teinhundert\t0-0 1-0").map(
        lambda line: line.decode(errors="replace")
    )
)
def test_links_of_words(whole: Path, line: str) -> None:
    task = checkpoint.load_task(whole / "best" / "task")
    outcome(lambda: linked_pieces(task, line, "links:1"), "links:1")


@fuzz(75, 5000)
@given(data=st.data(), toml=st.booleans())
def test_configuration_files(whole: Path, tmp_path: Path, data: st.DataObject, toml: bool) -> None:
    registry.discover()
    path = tmp_path / ("config.toml" if toml else "config.json")
    if toml:
        path.write_bytes(
            data.draw(
                mangled(b'preset = 1\n[model]\nd-model = 64\nnorm = "pre"\n[training]\nseed = 3\n')
            )
        )
    else:
        path.write_text(
            json.dumps(data.draw(tampered(json.loads((whole / "config.json").read_text()))))
        )
    outcome(lambda: resolve(TrainingConfig, {}, file=path), path)
