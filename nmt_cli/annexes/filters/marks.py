"""Marks of other programs in text: of subwords, Moses, spreadsheets, and other line ends."""

from __future__ import annotations

import re

from nmt_cli.data.cleaning import SUBWORD_MARKS
from nmt_cli.errors import shown
from nmt_cli.files.parallel_text import ParallelLines
from nmt_cli.streams import warn

MOSES_MARKS = re.compile(r"&apos;|&quot;|@-@|##AT##")
_CSV_CELL = re.compile(r'"(?:[^"]|"")*"')
_COLUMN_NAME = re.compile(r"[\w ()-]{1,30}")
_SHARE = 0.005  # of the lines. Fewer may be text about markup
_KINDS = [
    (
        SUBWORD_MARKS,
        "marks of subwords (@@ or U+2581); nmt prepare splits words itself: join the subwords "
        "first",
    ),
    (
        MOSES_MARKS,
        "Moses' tokens (&apos;, &quot;, @-@), which outputs will have too; detokenize the text "
        "first, for example: sacremoses -l LANG detokenize",
    ),
    (
        re.compile(r"\r(?!$)"),  # line ends of old Macs
        "carriage returns inside, which do not end a line here; make line feeds of them: "
        "tr '\\r' '\\n'",
    ),
]


def warn_of_marks(block: ParallelLines) -> None:
    """Warn of each kind of marks in the first lines of each file."""
    for name, content in zip(block.names, block.blocks, strict=True):
        lines = content.decode("utf-8", "replace").split("\n")
        for pattern, description in _KINDS:
            marked = [number for number, line in enumerate(lines, 1) if pattern.search(line)]
            if len(marked) > _SHARE * len(lines):
                warn(
                    f"{name}:{marked[0]}: {len(marked):,} of the first {len(lines):,} lines have "
                    f"{description}"
                )
    if len(block.names) == 1:  # a table
        pairs = [(source, target) for source, target, _ in block.lines()]
        _warn_of_spreadsheet(pairs, block.names[0])


def _warn_of_spreadsheet(pairs: list[tuple[str, str]], name: str) -> None:
    """Warn of cells in quotation marks, and of a first line that looks like a header."""
    quoted = 0
    doubled = False  # whether a cell has a quotation mark twice, as CSV writes it in a cell
    for source, target in pairs:
        if _CSV_CELL.fullmatch(source) or _CSV_CELL.fullmatch(target):
            quoted += 1
            doubled = doubled or '""' in source or '""' in target
    if doubled or 2 * quoted > len(pairs):
        warn(
            f"{name}: {quoted:,} of the first {len(pairs):,} lines have a cell in quotation "
            "marks, as in CSV. They are read as text. docs/prepare.md shows how to convert the file"
        )
    first, *others = pairs
    if all(map(_COLUMN_NAME.fullmatch, first)):
        unlike = [pair for pair in others if not any(map(_COLUMN_NAME.fullmatch, pair))]
        if 2 * len(unlike) > len(others):
            warn(
                f"{name}:1: {shown(list(first))} look like names of columns, and are read as a "
                "pair. Delete this line"
            )
