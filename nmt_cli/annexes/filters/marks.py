"""Marks of other programs in text: subwords, tokens of Moses, quotation marks and headers of
tables, and line ends.
"""

from __future__ import annotations

import re

from nmt_cli.data.cleaning import SUBWORD_MARKS
from nmt_cli.errors import shown
from nmt_cli.files.parallel_text import ParallelLines
from nmt_cli.streams import warn

MOSES_MARKS = re.compile(r"&apos;|&quot;|@-@|##AT##")
_CSV_CELL = re.compile(r'"(?:[^"]|"")*"')
_COLUMN_NAME = re.compile(r"[\w ()-]{1,30}")
_SHARE = 0.005  # of the lines; fewer may be text about markup
_KINDS = {
    "marks of subwords (@@ or U+2581); nmt prepare splits words itself: join the subwords first": SUBWORD_MARKS,
    "Moses' tokens (&apos;, &quot;, @-@), which outputs will have too; detokenize the text first, "
    "for example: "
    "sacremoses -l LANG detokenize": MOSES_MARKS,
    "carriage returns inside, which do not end a line here; make line feeds of them: tr '\\r' '\\n'": re.compile(
        r"\r(?!$)"
    ),  # old Mac line ends
}


def warn_of_marks(block: ParallelLines) -> None:
    """Warn of each kind of marks in the first lines of each file."""
    for name, content in zip(block.names, block.blocks, strict=True):
        lines = content.decode("utf-8", "replace").split("\n")
        for kind, pattern in _KINDS.items():
            found = [number for number, line in enumerate(lines, 1) if pattern.search(line)]
            if len(found) > _SHARE * len(lines):
                warn(
                    f"{name}:{found[0]}: {len(found):,} of the first {len(lines):,} lines have "
                    f"{kind}"
                )
    if len(block.names) == 1:  # a table
        _warn_of_spreadsheet(
            [(source, target) for source, target, _ in block.lines()], block.names[0]
        )


def _warn_of_spreadsheet(pairs: list[tuple[str, str]], name: str) -> None:
    """Warn of cells in quotation marks, and of a first line that looks unlike most of the others,
    as a header.
    """
    quoted = [pair for pair in pairs if any(map(_CSV_CELL.fullmatch, pair))]
    # As CSV writes a mark within a cell.
    doubled = any('""' in cell for pair in quoted for cell in pair)
    if doubled or 2 * len(quoted) > len(pairs):
        warn(
            f"{name}: {len(quoted):,} of the first {len(pairs):,} lines have a cell in quotation "
            "marks, as in CSV. "
            "They are read as text. docs/prepare.md shows how to convert the file"
        )
    first, *others = pairs
    if all(map(_COLUMN_NAME.fullmatch, first)):
        unlike = [pair for pair in others if not any(map(_COLUMN_NAME.fullmatch, pair))]
        if 2 * len(unlike) > len(others):
            warn(
                f"{name}:1: {shown(list(first))} look like names of columns, and are read as a "
                "pair. Delete this line"
            )
