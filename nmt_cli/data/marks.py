"""Marks that other programs leave in text: those of subwords, and tokens of Moses."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from nmt_cli.files.parallel_text import ParallelLines

SUBWORDS = re.compile(r"@@(?= |$)|\u2581")
MOSES = re.compile(r"&apos;|&quot;|@-@|##AT##")

_SHARE = 0.005  # of a file's lines; fewer may be text about markup


class _Kind(NamedTuple):
    pattern: re.Pattern[str]
    needles: Sequence[bytes]  # a block of text without these has no match; finding them takes no time
    warning: str


_KINDS = (
    _Kind(
        SUBWORDS,
        (b"@@", "\u2581".encode()),
        "marks of subwords (@@ or U+2581); nmt prepare splits words itself: join the subwords first",
    ),
    _Kind(
        MOSES,
        (b"&apos;", b"&quot;", b"@-@", b"##AT##"),
        "Moses' tokens (&apos;, &quot;, @-@), which outputs will have too; detokenize the text first, for example: "
        "sacremoses -l LANG detokenize",
    ),
)

Found = dict[tuple[str, int], list[int]]
"""By file and kind of marks: the numbers of the lines that have some."""


def marks_of(block: object) -> Found:
    """Return the lines of a block of two files that have marks; blocks of trees are not looked at."""
    found: Found = {}
    if not isinstance(block, ParallelLines):
        return found
    for name, content in zip(block.names, block.blocks, strict=True):
        for number, kind in enumerate(_KINDS):
            if any(needle in content for needle in kind.needles):
                lines = enumerate(content.decode("utf-8", "replace").split("\n"), block.first)
                found[name, number] = [place for place, line in lines if kind.pattern.search(line)]
    return found


class MarkedLines:
    """Counts the lines of files that have marks."""

    def __init__(self) -> None:
        self._lines: Counter[str] = Counter()
        self._marked: Counter[tuple[str, int]] = Counter()
        self._first: dict[tuple[str, int], int] = {}

    def add(self, block: object, found: Found) -> None:
        """Add what `marks_of` returned for a block."""
        if isinstance(block, ParallelLines):
            self._lines.update(dict.fromkeys(block.names, len(block)))
        for key, places in found.items():
            self._marked[key] += len(places)
            self._first.setdefault(key, min(places, default=0))

    def warnings(self) -> Iterator[str]:
        """Yield a message for each file and kind of marks."""
        for (name, kind), count in self._marked.items():
            if count > _SHARE * self._lines[name]:
                yield (
                    f"{name}:{self._first[name, kind]}: this and {count - 1:,} more of {self._lines[name]:,} lines "
                    f"have {_KINDS[kind].warning}"
                )
