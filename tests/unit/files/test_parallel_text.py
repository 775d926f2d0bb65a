"""Lines of two files, in blocks."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from nmt_cli.errors import DataError
from nmt_cli.files import parallel_text
from nmt_cli.files.parallel_text import read_parallel
from nmt_cli.files.text import find_file, read_lines


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel_text, "BLOCK", 2)


def written(folder: Path, source: bytes, target: bytes) -> tuple[Path, Path]:
    paths = folder / "t.en", folder / "t.de"
    for path, content in zip(paths, (source, target), strict=True):
        path.write_bytes(content)
    return paths


def pairs(source: Path, target: Path) -> list[tuple[str, str, str]]:
    return [pair for block in read_parallel(source, target) for pair in block.lines()]


def test_blocks_have_a_size_and_pairs_a_place(tmp_path: Path) -> None:
    source, target = written(tmp_path, b"a\nb\nc\n", b"x\ny\nz")
    blocks = list(read_parallel(source, target))
    assert [(block.first, len(block)) for block in blocks] == [(1, 2), (3, 1)]
    assert pairs(source, target) == [
        ("a", "x", f"{source}:1"),
        ("b", "y", f"{source}:2"),
        ("c", "z", f"{source}:3"),
    ]


@pytest.mark.parametrize(
    ("source_lines", "target_lines"), [(3, 5), (5, 3), (2, 4), (3, 4), (0, 1), (1, 0)]
)
def test_unequal_files_are_an_error(tmp_path: Path, source_lines: int, target_lines: int) -> None:
    source, target = written(tmp_path, b"a\n" * source_lines, b"x\n" * target_lines)
    with pytest.raises(
        DataError, match=rf"t\.en has {source_lines} lines but .*t\.de has {target_lines}"
    ):
        pairs(source, target)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n",
        b"\n\n\n",
        b"a",
        b"\xef\xbb\xbfa\r\n\xef\xbb\xbfb\r\nc\r\r\n",
        b"\xef\xbb\xbf",
        "a\x85b\u2028c\rd\n\ne".encode(),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_lines_are_those_of_read_lines(tmp_path: Path, content: bytes, packed: bool) -> None:
    source, target = written(tmp_path, gzip.compress(content) if packed else content, content)
    lines = list(read_lines(source))
    assert [pair[:2] for pair in pairs(source, target)] == list(zip(lines, lines, strict=True))


@pytest.mark.parametrize("number", [1, 2, 3])
def test_bytes_that_are_not_utf8_have_a_place(tmp_path: Path, number: int) -> None:
    lines = [b"a", b"b", b"c"]
    lines[number - 1] = b"caf\xe9"
    source, target = written(tmp_path, b"x\ny\nz", b"\n".join(lines))
    with pytest.raises(
        DataError, match=rf"t\.de:{number}: not valid UTF-8: byte 0xe9 at position 4"
    ):
        pairs(source, target)


def test_utf16_and_endless_lines_are_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(DataError, match=r"t\.en: this text is UTF-16"):
        pairs(*written(tmp_path, "a\nb".encode("utf-16"), b"x\ny"))
    monkeypatch.setattr(parallel_text, "LONGEST_LINE", 9)
    with pytest.raises(DataError, match=r"t\.de:4: a line of more than"):
        pairs(*written(tmp_path, b"a\nb\nc\nd", b"x\ny\nz\n" + b"w" * 10))


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("newstest2009", 2525),
        ("newssyscomb2009", 502),
        ("newstest2013", 3000),
        ("newstest2016", 2999),
    ],
)
def test_real_test_sets_have_their_published_number_of_lines(
    shared_data: Path, name: str, lines: int
) -> None:
    prefix = str(shared_data / "wmt" / "en-de" / name)
    assert len(pairs(find_file(prefix, "en"), find_file(prefix, "de"))) == lines
