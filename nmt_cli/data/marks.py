"""Marks that other programs leave in text: subwords, and tokens of Moses."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from nmt_cli.files.parallel_text import ParallelLines

SUBWORDS = re.compile(r"@@(?= |$)|\u2581")
MOSES = re.compile(r"&apos;|&quot;|@-@|##AT##")

_SHARE = 0.005  # of a file's lines; fewer may be text about markup
_KINDS = {
    "marks of subwords (@@ or U+2581); nmt prepare splits words itself: join the subwords first": SUBWORDS,
    "Moses' tokens (&apos;, &quot;, @-@), which outputs will have too; detokenize the text first, for example: "
    "sacremoses -l LANG detokenize": MOSES,
}
# A block of text without these has no match. Looking for them takes no time.
_NEEDLES = (b"@@", "\u2581".encode(), b"&apos;", b"&quot;", b"@-@", b"##AT##")

Found = dict[tuple[str, str], list[int]]  # by file and warning: the numbers of the lines that have marks


def marks_of(block: object) -> Found:
    """Return the lines of a block of two files that have marks; blocks of trees are not looked at."""
    found: Found = {}
    if not isinstance(block, ParallelLines):
        return found
    for name, content in zip(block.names, block.blocks, strict=True):
        if any(needle in content for needle in _NEEDLES):
            lines = content.decode("utf-8", "replace").split("\n")
            for kind, pattern in _KINDS.items():
                if places := [place for place, line in enumerate(lines, block.first) if pattern.search(line)]:
                    found[name, kind] = places
    return found


class MarkedLines:
    """Counts the lines of files that have marks."""

    def __init__(self) -> None:
        self._lines: Counter[str] = Counter()
        self._marked: Counter[tuple[str, str]] = Counter()
        self._first: dict[tuple[str, str], int] = {}

    def add(self, block: object, found: Found) -> None:
        """Add what `marks_of` returned for a block."""
        if isinstance(block, ParallelLines):
            self._lines.update(dict.fromkeys(block.names, len(block)))
        for key, places in found.items():
            self._marked[key] += len(places)
            self._first.setdefault(key, places[0])

    def warnings(self) -> Iterator[str]:
        """Yield a message for each file and kind of marks."""
        for (name, kind), count in self._marked.items():
            lines, first = self._lines[name], self._first[name, kind]
            if count > _SHARE * lines:
                yield f"{name}:{first}: this and {count - 1:,} more of {lines:,} lines have {kind}"
