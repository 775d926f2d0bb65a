from __future__ import annotations

import os
import time
import tracemalloc
from collections.abc import Callable, Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt_cli.files.stream import LONGEST_LINE, LineStream


def stream_of(blocks: Iterable[bytes], warn: Callable[[str], None] = lambda message: None) -> LineStream:
    """A stream whose input comes in these blocks, without a pause."""
    rest = iter(blocks)
    return LineStream(lambda: next(rest, b""), lambda: True, warn, "in")


def read(blocks: Iterable[bytes], warn: Callable[[str], None] = lambda message: None) -> list[str]:
    return [line for window in stream_of(blocks, warn).windows(1000) for line in window]


@given(st.lists(st.text(st.characters(exclude_characters="\n\r", exclude_categories=["Cs"])), min_size=1), st.data())
def test_lines_end_in_line_feeds_alone_wherever_blocks_end(lines: list[str], data: st.DataObject) -> None:
    content = "".join(f"{line}\n" for line in lines).encode()
    cut = data.draw(st.integers(0, len(content)))
    expected = [lines[0].removeprefix("\ufeff"), *lines[1:]]
    assert read(block for block in (content[:cut], content[cut:]) if block) == expected


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"", []),
        (b"\n", [""]),
        (b"a", ["a"]),
        (b"a\n\nb", ["a", "", "b"]),
        (b"\xef\xbb\xbfa\r\n\xef\xbb\xbfb\r\n", ["a", "\ufeffb"]),
        ("a\u0085b\u2028c\x0bd\x0c\x1ce\n".encode(), ["a\u0085b\u2028c\x0bd\x0c\x1ce"]),
        (b"a\x00b\n", ["a\x00b"]),
        (b" \ta \r\r\n", [" \ta \r"]),
    ],
)
def test_what_is_a_line(content: bytes, lines: list[str]) -> None:
    assert read([content] if content else []) == lines


def test_invalid_bytes_are_replaced_and_their_line_is_named() -> None:
    warnings: list[str] = []
    assert read([b"good\nb\xffd\n\xc3\n\xe2\x82\xac\n"], warnings.append) == ["good", "b\ufffdd", "\ufffd", "\u20ac"]
    assert [warning.split(": ")[0] for warning in warnings] == ["in:2", "in:3"]
    assert "0xff at 2" in warnings[0]


def test_a_line_too_long_is_cut_between_characters_and_the_next_ones_are_whole() -> None:
    warnings: list[str] = []
    long = "é" * LONGEST_LINE  # two bytes each
    blocks = [b"x" + long.encode()] * 5 + [b"\nshort\n"]
    first, second = read(blocks, warnings.append)
    assert first == "x" + "é" * ((LONGEST_LINE - 1) // 2)
    assert second == "short"
    assert len(warnings) == 1
    assert warnings[0].startswith("in:1: longer than")


def test_a_line_without_an_end_does_not_fill_the_memory() -> None:
    block = b"x" * LONGEST_LINE
    tracemalloc.start()
    (line,) = read(block for _ in range(50))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(line) == LONGEST_LINE
    assert peak < 10 * LONGEST_LINE


def test_windows_are_bounded_by_lines_and_by_characters() -> None:
    assert [len(w) for w in stream_of([b"a\n" * 10]).windows(4)] == [4, 4, 2]
    assert [len(w) for w in stream_of([b"a" * 9 + b"\n"] * 10).windows(4, characters=18)] == [2] * 5


def test_no_more_is_read_than_a_window_needs() -> None:
    blocks_read = 0

    def read_block() -> bytes:
        nonlocal blocks_read
        blocks_read += 1
        return b"line\n" * 10

    windows = LineStream(read_block, lambda: True, print, "in").windows(25)
    for number in range(1, 101):
        assert len(next(windows)) == 25
        assert blocks_read == -(-number * 25 // 10)


@pytest.mark.timeout(30)
def test_a_pause_hands_on_what_is_there() -> None:
    reading, writing = os.pipe()
    try:
        windows = LineStream.of_descriptor(reading, print, "in").windows(1000)
        for text in (b"one\n", b"two\nthree\nfo", b"ur\n"):
            os.write(writing, text)
            start = time.monotonic()
            window = next(windows)
            assert time.monotonic() - start < 5
            assert window == [line for line in (text.decode().split("\n")) if line and line != "fo"] or window == [
                "four"
            ]
        os.write(writing, b"last")
        os.close(writing)
        assert list(windows) == [["last"]]
    finally:
        os.close(reading)
