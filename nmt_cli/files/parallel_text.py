"""Pairs of lines, in two files or in a table.

They are read in blocks of bytes, which another process can split and decode.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, zip_longest
from pathlib import Path
from typing import NamedTuple

from nmt_cli.errors import DataError, UsageError
from nmt_cli.files.opening import open_input
from nmt_cli.files.text import LONGEST_LINE, decoded_line, too_long, without_mark

BLOCK = 2000  # lines in a block, but the last one of a file


@dataclass(frozen=True)
class ParallelLines:
    """Consecutive lines of two files, not decoded yet. The length is the number of pairs."""

    names: tuple[str, ...]  # of the files
    blocks: tuple[bytes, ...]  # of each file, a line feed between two lines
    first: int  # the number of the first line
    size: int

    def __len__(self) -> int:
        return self.size

    def lines(self) -> Iterator[tuple[str, str, str]]:
        """Return, for each pair, source line, target line and place (`train.en:17`).

        Raises:
            DataError: a line is not UTF-8. The message names the file and the line.
        """
        source, target = self._sides()
        numbers = range(self.first, self.first + len(self))
        places = (f"{self.names[0]}:{number}" for number in numbers)
        return zip(source, target, places, strict=True)

    def _sides(self) -> tuple[list[str], list[str]]:
        return self._decoded(0), self._decoded(1)

    def _decoded(self, side: int) -> list[str]:
        content = self.blocks[side]
        try:
            text = content.decode("utf-8")
        except UnicodeDecodeError:
            numbered = enumerate(content.split(b"\n"), self.first)
            return [decoded_line(line, f"{self.names[side]}:{number}") for number, line in numbered]
        lines = text.split("\n")
        if "\r" in text:
            lines = [line.removesuffix("\r") for line in lines]
        return lines


class Columns(NamedTuple):
    """The numbers of a table's columns, from 1."""

    source: int = 1
    target: int = 2


def columns_of(columns: str) -> Columns:
    """Return the columns of `source=2,target=5`, or raise UsageError for another form."""
    numbers = re.fullmatch(r"source=([1-9]\d{0,4}),target=([1-9]\d{0,4})", columns)
    if not numbers:
        raise UsageError(
            f"--columns {columns}: expected two numbers from 1, as in source=2,target=5"
        )
    return Columns(int(numbers[1]), int(numbers[2]))


@dataclass(frozen=True)
class TableLines(ParallelLines):
    """Consecutive lines of a table: columns with a tab between two. Quotation marks are text."""

    columns: Columns = field(default_factory=Columns)

    def _sides(self) -> tuple[list[str], list[str]]:
        rows = self.cells(self.columns)
        return [row[0] for row in rows], [row[1] for row in rows]

    def cells(self, columns: Sequence[int], flag: str = "--columns") -> list[list[str]]:
        """Return the columns, which `flag` gives, of each line.

        Raises:
            DataError: a line lacks one.
        """
        needed = max(columns)
        rows = []
        for number, line in enumerate(self._decoded(0), self.first):
            cells = line.split("\t") if line.strip() else [""] * needed
            if len(cells) < needed:
                raise DataError(
                    f"{self.names[0]}:{number}: expected {needed} columns with a tab between two, "
                    f"found {len(cells)}; correct the line, or give other {flag}"
                )
            rows.append([cells[column - 1] for column in columns])
        return rows


def read_table(
    path: Path, columns: Columns, consumed: Callable[[int], None] | None = None
) -> Iterator[ParallelLines]:
    """Yield the lines of a table in blocks.

    Raises:
        DataError: as `read_parallel`. A column that is missing is found by `TableLines`.
    """
    first = 1
    for block in _blocks(path, consumed):
        size = block.count(b"\n") + 1
        yield TableLines((str(path),), (block,), first, size, columns)
        first += size


def read_parallel(
    source: Path, target: Path, consumed: Callable[[int], None] | None = None
) -> Iterator[ParallelLines]:
    """Yield the lines of two files with the same number of lines, in blocks.

    Raises:
        DataError: as `text.read_lines`, or one file has more lines. The message gives both counts.
            Bytes that are not UTF-8 are found by `ParallelLines`.
    """
    sources = _blocks(source, consumed)
    targets = _blocks(target, consumed)
    names = (str(source), str(target))
    lines = 0
    for source_block, target_block in zip_longest(sources, targets):
        size = _size(source_block)
        if size != _size(target_block):
            source_lines = lines + sum(map(_size, chain([source_block], sources)))
            target_lines = lines + sum(map(_size, chain([target_block], targets)))
            raise not_parallel(names[0], source_lines, names[1], target_lines)
        yield ParallelLines(names, (source_block, target_block), lines + 1, size)
        lines += size


def _size(block: bytes | None) -> int:
    """Return the number of lines of a block, 0 if a file has ended before it."""
    if block is None:
        return 0
    return block.count(b"\n") + 1


def not_parallel(source: str, source_lines: int, target: str, target_lines: int) -> DataError:
    """Return the error of two files whose numbers of lines differ."""
    return DataError(
        f"{source} has {source_lines} lines but {target} has {target_lines}; line n of one file "
        "must belong to line n of the other"
    )


def _blocks(path: Path, consumed: Callable[[int], None] | None) -> Iterator[bytes]:
    """Yield the lines of a file in blocks, a line feed between two lines, without a mark."""
    lines: list[bytes] = []  # of the next block
    rest = b""  # the line that has no end yet
    number = 0  # of lines in the blocks before
    with open_input(path, consumed) as stream:
        for content in iter(stream.read, b""):
            *whole, rest = (rest + content).split(b"\n")
            if whole and number == 0 and not lines:  # the first line of the file
                whole[0] = without_mark(whole[0], stream.name)
            lines += whole
            while len(lines) >= BLOCK:
                yield b"\n".join(lines[:BLOCK])
                del lines[:BLOCK]
                number += BLOCK
            if len(rest) > LONGEST_LINE:
                raise too_long(f"{stream.name}:{number + len(lines) + 1}")
        if rest:
            if number == 0 and not lines:
                rest = without_mark(rest, stream.name)
            lines.append(rest)
    if lines:
        yield b"\n".join(lines)
