"""Lines of real files: only the line feed ends a line, and errors name the file and the line."""

from __future__ import annotations

import gzip
import io
import os
import tempfile
import tracemalloc
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt_cli.errors import DataError
from nmt_cli.files import text
from nmt_cli.files.opening import Input
from nmt_cli.files.text import (
    LONGEST_CUT_LINE,
    check_regular,
    count_lines,
    find_file,
    fingerprint,
    read_lines,
    read_windows,
)

LINES = st.lists(
    st.text(st.characters(exclude_characters="\n\r", exclude_categories=["Cs"]), max_size=20),
    max_size=8,
)


class Blocks(Input):
    """Input that comes in these blocks, without a pause."""

    def __init__(self, blocks: Iterable[bytes]) -> None:
        self.name = "in"
        self.blocks = iter(blocks)
        self.count = 0

    def ready(self) -> bool:
        return True

    def read(self) -> bytes:
        self.count += 1
        return next(self.blocks, b"")


def read_leniently(
    blocks: Iterable[bytes], warn: Callable[[str], None] = lambda message: None
) -> list[str]:
    return [line for window in read_windows(Blocks(blocks), 1000, warn) for line in window]


def written(directory: Path, content: bytes, name: str = "file.en") -> Path:
    path = directory / name
    path.write_bytes(content)
    return path


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("text")


@given(lines=LINES, last_end=st.booleans(), ending=st.sampled_from(["\n", "\r\n"]), data=st.data())
def test_lines_come_back_in_both_modes(
    directory: Path, lines: list[str], last_end: bool, ending: str, data: st.DataObject
) -> None:
    content = (
        ending.join(lines) + (ending if lines and (last_end or not lines[-1]) else "")
    ).encode()
    expected = [lines[0].removeprefix("\ufeff"), *lines[1:]] if lines else []
    if content == b"\xef\xbb\xbf":
        expected = [""]
    assert list(read_lines(written(directory, content))) == expected
    cut = data.draw(st.integers(0, len(content)))
    assert read_leniently(block for block in (content[:cut], content[cut:]) if block) == expected


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"", []),
        (b"\n", [""]),
        (b"a\n\nb", ["a", "", "b"]),
        (b"\xef\xbb\xbfa\r\n\xef\xbb\xbfb\r\n", ["a", "\ufeffb"]),
        (
            "a\x0bb\x0cc\x1cd\x85e\u2028f\u2029g\rh\x00\n".encode(),
            ["a\x0bb\x0cc\x1cd\x85e\u2028f\u2029g\rh\x00"],
        ),
        (b" \ta \r\r\n", [" \ta \r"]),
    ],
)
def test_what_is_a_line(tmp_path: Path, content: bytes, lines: list[str]) -> None:
    assert list(read_lines(written(tmp_path, content))) == lines
    assert read_leniently([content] if content else []) == lines


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"good\nb\xe4d\n", r"file\.en:2: not valid UTF-8: byte 0xe4 at position 2"),
        (b"\xed\xa0\x80\n", r"file\.en:1: not valid UTF-8"),  # a lone surrogate
        (gzip.compress(b"good\n\xff\n", mtime=0), r"file\.en:2: not valid UTF-8"),
        ("a\n".encode("utf-16"), r"file\.en: .*UTF-16"),
    ],
)
def test_text_that_is_not_utf8_is_an_error(tmp_path: Path, content: bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        list(read_lines(written(tmp_path, content)))


def test_lenient_mode_replaces_invalid_bytes_and_warns() -> None:
    warnings: list[str] = []
    assert read_leniently([b"good\nb\xffd\n\xc3\n\xe2\x82\xac\n"], warnings.append) == [
        "good",
        "b�d",
        "�",
        "€",
    ]
    assert [warning.split(": ")[0] for warning in warnings] == ["in:2", "in:3"]
    assert "0xff at position 2" in warnings[0]
    with pytest.raises(DataError, match=r"in: .*UTF-16"):
        read_leniently(["a\n".encode("utf-16")])


def test_too_long_a_line_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "LONGEST_LINE", 10)
    assert list(read_lines(written(tmp_path, b"1234567890\n"))) == ["1234567890"]
    for end in (b"\n", b""):
        with pytest.raises(DataError, match=r"file\.en:2: a line of more than"):
            list(read_lines(written(tmp_path, b"1\n12345678901" + end)))


def test_lenient_mode_cuts_a_long_line_between_characters() -> None:
    warnings: list[str] = []
    long = "é" * LONGEST_CUT_LINE  # two bytes each
    first, second = read_leniently([b"x" + long.encode()] * 5 + [b"\nshort\n"], warnings.append)
    assert first == "x" + "é" * ((LONGEST_CUT_LINE - 1) // 2)
    assert second == "short"
    assert [warning.split(": ")[0] for warning in warnings] == ["in:1"]


def test_a_line_without_an_end_does_not_fill_the_memory() -> None:
    block = b"x" * LONGEST_CUT_LINE
    tracemalloc.start()
    (line,) = read_leniently(block for _ in range(50))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(line) == LONGEST_CUT_LINE
    assert peak < 10 * LONGEST_CUT_LINE
    with pytest.raises(DataError, match=r"in:5: a line of more than"):
        read_leniently([b"short\n", *[block] * 40, b"\n"] * 2 + [block] * 66)


def test_windows_are_bounded_and_nothing_more_is_read() -> None:
    assert [len(w) for w in read_windows(Blocks([b"a\n" * 10]), 4, print)] == [4, 4, 2]
    assert [
        len(w) for w in read_windows(Blocks([b"a" * 9 + b"\n"] * 10), 4, print, characters=18)
    ] == [2] * 5
    stream = Blocks([b"line\n" * 10] * 1000)
    for number, window in enumerate(islice(read_windows(stream, 25, print), 100), start=1):
        assert len(window) == 25
        assert stream.count == -(-number * 25 // 10)


@given(st.text("ab\n\r\ufeff", max_size=12), st.sampled_from([bytes, gzip.compress]))
def test_lines_are_counted_as_they_are_read(content: str, pack: Callable[[bytes], bytes]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = written(Path(folder), pack(content.encode()))
        assert count_lines(path) == len(list(read_lines(path)))


@pytest.mark.timeout(120)  # it would wait for ever
def test_a_pause_ends_a_window() -> None:
    reading, writing = os.pipe()
    with io.FileIO(reading) as raw:
        windows = read_windows(Input(raw, "pipe"), 1000, print)
        for content, window in (
            (b"one\n", ["one"]),
            (b"two\nthree\nfo", ["two", "three"]),
            (b"ur\n", ["four"]),
        ):
            os.write(writing, content)
            assert next(windows) == window
        os.write(writing, b"last")
        os.close(writing)
        assert list(windows) == [["last"]]


def test_byte_order_mark_can_be_kept(tmp_path: Path) -> None:
    assert list(read_lines(written(tmp_path, "\ufeffa\n".encode()), keep_mark=True)) == ["\ufeffa"]


def test_only_regular_files_can_be_read_twice(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (tmp_path, tmp_path / "absent", pipe):
        with pytest.raises(DataError, match=str(path)):
            check_regular(path)


def test_files_are_found_plain_or_compressed(tmp_path: Path) -> None:
    prefix = str(tmp_path / "train")
    for ending in (".zst", ".bz2", ".xz", ".gz"):
        zipped = written(tmp_path, b"", f"train.en{ending}")
        assert find_file(prefix, "en") == zipped
    plain = written(tmp_path, b"", "train.en")
    assert find_file(prefix, "en") == plain


@pytest.mark.parametrize(
    ("prefix", "hint"),
    [
        ("train[1]", r"Found: train\[1\]\.fr"),
        ("no/such/directory", "No file"),
        ("**x", "No file"),
        ("sub", "sub is a directory; .*sub/all"),
        *((name, r"Did you mean .*/test\?") for name in ("test.en", "test.de.gz", "tset")),
    ],
)
def test_a_missing_file_is_an_error_with_suggestions(
    tmp_path: Path, prefix: str, hint: str
) -> None:
    (tmp_path / "sub").mkdir()
    for name in ("train[1].fr", "test.en", "test.de.gz", "sub/all.en.zst"):
        written(tmp_path, b"", name)
    with pytest.raises(DataError, match=hint):
        find_file(str(tmp_path / prefix), "en")


def test_fingerprint_is_sha256(tmp_path: Path) -> None:
    # FIPS 180-2's example.
    expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert fingerprint(written(tmp_path, b"abc")) == expected
    with pytest.raises(DataError, match="absent"):
        fingerprint(tmp_path / "absent")
