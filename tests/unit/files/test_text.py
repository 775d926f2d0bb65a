"""Lines of real files: only the line feed ends a line, and whatever is wrong is named with file and line."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt_cli.errors import DataError
from nmt_cli.files import text
from nmt_cli.files.text import find_file, fingerprint, read_lines, read_parallel

LINES = st.lists(
    st.text(st.characters(exclude_characters="\n\r", exclude_categories=["Cs"]), max_size=20).filter(
        lambda line: not line.startswith("\ufeff")
    ),
    max_size=8,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("text")


def written(folder: Path, content: bytes, name: str = "file.en") -> Path:
    path = folder / name
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


@given(lines=LINES, last_end=st.booleans(), ending=st.sampled_from(["\n", "\r\n"]), name=st.sampled_from(["a", "a.gz"]))
def test_lines_come_back(folder: Path, lines: list[str], last_end: bool, ending: str, name: str) -> None:
    content = ending.join(lines) + (ending if lines and (last_end or not lines[-1]) else "")
    assert list(read_lines(written(folder, content.encode(), name))) == lines


def test_only_the_line_feed_ends_a_line(tmp_path: Path) -> None:
    inside = "a\x0bb\x0cc\x1cd\x85e\u2028f\u2029g\rh"
    assert list(read_lines(written(tmp_path, f"{inside}\nnext".encode()))) == [inside, "next"]


def test_byte_order_mark_is_left_out_at_the_start_alone(tmp_path: Path) -> None:
    assert list(read_lines(written(tmp_path, "\ufeffa\n\ufeffb\n".encode()))) == ["a", "\ufeffb"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"good\nb\xe4d\n", r"file\.en:2: not valid UTF-8: byte 0xe4 at position 2"),
        (b"\xed\xa0\x80\n", r"file\.en:1: not valid UTF-8"),  # a lone surrogate
        ("a\n".encode("utf-16"), r"file\.en:1: .*UTF-16"),
    ],
)
def test_text_that_is_not_utf8_is_named(tmp_path: Path, content: bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        list(read_lines(written(tmp_path, content)))


def test_truncated_gzip_is_named(tmp_path: Path) -> None:
    whole = gzip.compress(os.urandom(1000).hex().encode() + b"\n")
    path = tmp_path / "cut.en.gz"
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=r"cut\.en\.gz:1: .*ends in the middle"):
        list(read_lines(path))


@pytest.mark.parametrize("position", [0, -6])  # the magic number; the checksum
def test_damaged_gzip_is_named(tmp_path: Path, position: int) -> None:
    content = bytearray(gzip.compress(b"a line\n"))
    content[position] ^= 0xFF
    path = tmp_path / "bad.en.gz"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"bad\.en\.gz:\d: not a sound gzip file"):
        list(read_lines(path))


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="directory"):
        list(read_lines(tmp_path))
    with pytest.raises(DataError, match="No such file"):
        list(read_lines(tmp_path / "absent"))
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(DataError, match="no regular file"):
        list(read_lines(pipe))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_unreadable_file_is_named(tmp_path: Path) -> None:
    path = written(tmp_path, b"a\n")
    path.chmod(0)
    with pytest.raises(DataError, match=r"file\.en: cannot read this file: Permission denied"):
        list(read_lines(path))


def test_endless_line_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "LONGEST_LINE", 10)
    assert list(read_lines(written(tmp_path, b"123456789\n"))) == ["123456789"]
    with pytest.raises(DataError, match=r"file\.en:2: a line of more than"):
        list(read_lines(written(tmp_path, b"1\n12345678901\n")))


@pytest.mark.parametrize("name", ["file.en", "file.en.gz"])
def test_all_bytes_on_the_disk_are_reported(tmp_path: Path, name: str) -> None:
    path = written(tmp_path, b"some words\n" * 50_000, name)
    told: list[int] = []
    assert sum(1 for _ in read_lines(path, told.append)) == 50_000
    assert sum(told) == path.stat().st_size
    assert len(told) > 5


def test_pairs_carry_their_place(tmp_path: Path) -> None:
    source, target = written(tmp_path, b"a\nb\n", "t.en"), written(tmp_path, b"x\ny\n", "t.de.gz")
    assert list(read_parallel(source, target)) == [("a", "x", f"{source}:1"), ("b", "y", f"{source}:2")]


@pytest.mark.parametrize(("source_lines", "target_lines"), [(3, 5), (5, 3), (0, 1), (1, 0)])
def test_both_counts_are_named_where_they_differ(tmp_path: Path, source_lines: int, target_lines: int) -> None:
    source = written(tmp_path, b"a\n" * source_lines, "t.en")
    target = written(tmp_path, b"a\n" * target_lines, "t.de")
    with pytest.raises(DataError, match=rf"t\.en has {source_lines} lines but .*t\.de has {target_lines}"):
        list(read_parallel(source, target))


def test_files_are_found_plain_or_compressed(tmp_path: Path) -> None:
    prefix = str(tmp_path / "train")
    zipped = written(tmp_path, b"", "train.en.gz")
    assert find_file(prefix, "en") == zipped
    plain = written(tmp_path, b"", "train.en")
    assert find_file(prefix, "en") == plain


def test_missing_file_is_told_what_is_there(tmp_path: Path) -> None:
    written(tmp_path, b"", "train[1].fr")
    with pytest.raises(DataError, match=r"train\[1\]\.en: there is no such file.*There is train\[1\]\.fr"):
        find_file(str(tmp_path / "train[1]"), "en")
    with pytest.raises(DataError, match=r"No file begins with .*/valid\. at all"):
        find_file(str(tmp_path / "valid"), "en")


def test_fingerprint_is_sha256(tmp_path: Path) -> None:
    # FIPS 180-2's example.
    expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert fingerprint(written(tmp_path, b"abc")) == expected
    with pytest.raises(DataError, match="cannot read"):
        fingerprint(tmp_path / "absent")


@pytest.mark.parametrize(
    ("name", "lines"),
    [("newstest2009", 2525), ("newssyscomb2009", 502), ("newstest2013", 3000), ("newstest2016", 2999)],
)
def test_real_test_sets_have_their_published_number_of_lines(shared_data: Path, name: str, lines: int) -> None:
    folder = shared_data / "wmt" / "en-de"
    examples = list(read_parallel(find_file(str(folder / name), "en"), find_file(str(folder / name), "de")))
    assert len(examples) == lines
