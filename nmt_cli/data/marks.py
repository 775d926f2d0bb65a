"""Marks that other programs leave in text: subwords, and tokens of Moses."""

from __future__ import annotations

import re

from nmt_cli.files.parallel_text import ParallelLines
from nmt_cli.streams import warn

SUBWORDS = re.compile(r"@@(?= |$)|\u2581")
MOSES = re.compile(r"&apos;|&quot;|@-@|##AT##")

_SHARE = 0.005  # of the lines; fewer may be text about markup
_KINDS = {
    "marks of subwords (@@ or U+2581); nmt prepare splits words itself: join the subwords first": SUBWORDS,
    "Moses' tokens (&apos;, &quot;, @-@), which outputs will have too; detokenize the text first, for example: "
    "sacremoses -l LANG detokenize": MOSES,
}


def warn_of_marks(block: object) -> None:
    """Warn of each kind of marks in the first lines of each file, if `block` has the first lines."""
    if not isinstance(block, ParallelLines) or block.first != 1:
        return
    for name, content in zip(block.names, block.blocks, strict=True):
        lines = content.decode("utf-8", "replace").split("\n")
        for kind, pattern in _KINDS.items():
            found = [number for number, line in enumerate(lines, 1) if pattern.search(line)]
            if len(found) > _SHARE * len(lines):
                warn(f"{name}:{found[0]}: {len(found):,} of the first {len(lines):,} lines have {kind}")
