"""Pairs of lines, in two files or in a table, read in blocks of bytes that another process can
split and decode.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

from nmt_cli.errors import DataError, UsageError
from nmt_cli.files.opening import open_input
from nmt_cli.files.text import LONGEST_LINE, decoded_line, too_long, without_mark

BLOCK = 2000  # lines in a block; the last block of a file may be shorter


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
        places = (
            f"{self.names[0]}:{number}" for number in range(self.first, self.first + len(self))
        )
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
        return [line.removesuffix("\r") for line in lines] if "\r" in text else lines


class Columns(NamedTuple):
    """The numbers of a table's columns, from 1."""

    source: int = 1
    target: int = 2


def columns_of(columns: str) -> Columns:
    """Return the columns of `source=2,target=5`; raise UsageError for another form."""
    numbers = re.fullmatch(r"source=([1-9]\d{0,4}),target=([1-9]\d{0,4})", columns)
    if not numbers:
        raise UsageError(
            f"--columns {columns}: expected two numbers from 1, as in source=2,target=5"
        )
    return Columns(int(numbers[1]), int(numbers[2]))


@dataclass(frozen=True)
class TableLines(ParallelLines):
    """Consecutive lines of a table: columns with a tab between two, in which quotation marks mean
    nothing.
    """

    columns: Columns = field(default_factory=Columns)

    def _sides(self) -> tuple[list[str], list[str]]:
        rows = self.cells(self.columns)
        return [row[0] for row in rows], [row[1] for row in rows]

    def cells(self, columns: Sequence[int], flag: str = "--columns") -> list[list[str]]:
        """Return the columns of each line, which `flag` gives; raise DataError for a line that
        lacks one.
        """
        needed, rows = max(columns), []
        for number, line in enumerate(self._decoded(0), self.first):
            cells = line.split("\t") if line.strip() else [""] * needed
            if len(cells) < needed:
                raise DataError(
                    f"{self.names[0]}:{number}: expected {needed} columns with a tab between two, "
                    f"found {len(cells)}; "
                    f"correct the line, or give other {flag}"
                )
            rows.append([cells[column - 1] for column in columns])
        return rows


def read_table(
    path: Path, columns: Columns, consumed: Callable[[int], None] | None = None
) -> Iterator[ParallelLines]:
    """Yield the lines of a table in blocks; raise DataError as `read_parallel`, or `TableLines` for
    a column.
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
        DataError: as `text.read_lines`, except that of bytes that are not UTF-8, which
            `ParallelLines` finds; or one file has more lines. The message gives both counts.
    """
    sources, targets = _blocks(source, consumed), _blocks(target, consumed)
    names = (str(source), str(target))
    read = [0, 0]
    for blocks in zip_longest(sources, targets):
        sizes = [0 if block is None else block.count(b"\n") + 1 for block in blocks]
        if sizes[0] != sizes[1]:
            for side, rest in enumerate((sources, targets)):
                read[side] += sizes[side] + sum(block.count(b"\n") + 1 for block in rest)
            raise not_parallel(names[0], read[0], names[1], read[1])
        yield ParallelLines(names, blocks, read[0] + 1, sizes[0])
        read = [total + size for total, size in zip(read, sizes, strict=True)]


def not_parallel(source: str, source_lines: int, target: str, target_lines: int) -> DataError:
    """Return the error of two files whose numbers of lines differ."""
    return DataError(
        f"{source} has {source_lines} lines but {target} has {target_lines}; line n of one file "
        "must belong to line n "
        "of the other"
    )


def _blocks(path: Path, consumed: Callable[[int], None] | None) -> Iterator[bytes]:
    """Yield the lines of a file in blocks, a line feed between two lines; without a byte-order
    mark.
    """
    held: list[bytes] = []
    rest, number = b"", 0  # of the lines before those held
    with open_input(path, consumed) as stream:
        while block := stream.read():
            *whole, rest = (rest + block).split(b"\n")
            if not number and not held and whole:
                whole[0] = without_mark(whole[0], stream.name)
            held += whole
            while len(held) >= BLOCK:
                yield b"\n".join(held[:BLOCK])
                del held[:BLOCK]
                number += BLOCK
            if len(rest) > LONGEST_LINE:
                raise too_long(f"{stream.name}:{number + len(held) + 1}")
        if rest:
            held.append(rest if number or held else without_mark(rest, stream.name))
    if held:
        yield b"\n".join(held)
