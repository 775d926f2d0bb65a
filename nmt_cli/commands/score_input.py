"""The files that `nmt score` reads, and the checks on them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from nmt_cli.data.marks import MOSES, SUBWORDS
from nmt_cli.errors import DataError
from nmt_cli.files.text import read_lines
from nmt_cli.metrics.bleu import Score

STANDARD_INPUT = "-"

_TOKENIZED = re.compile(rf"{MOSES.pattern}| [.,](?= |$)")
_TOKENIZED_SHARE = 0.2  # of the lines; tokenized text has such a mark in most lines, plain text in very few


def read_segments(name: str) -> tuple[str, list[str]]:
    """Return the name for messages and the lines of a file (plain or compressed) or, for "-", of standard input.

    Lines end at the line feed only. A byte-order mark is kept, as sacreBLEU keeps it: published scores include it.

    Raises:
        DataError: missing, unreadable, damaged, not UTF-8, or empty.
    """
    path = None if name == STANDARD_INPUT else Path(name)
    shown = "standard input" if path is None else name
    lines = list(read_lines(path, keep_mark=True))
    if not lines:
        raise DataError(f"{shown}: the file is empty")
    return shown, lines


def check_subword_marks(name: str, lines: Sequence[str]) -> None:
    """Raise DataError at the first line that contains subword marks: scores of subwords are far too high."""
    for number, line in enumerate(lines, 1):
        if mark := SUBWORDS.search(line):
            raise DataError(
                f"{name}:{number}: the line contains subword marks ({mark[0]}), so its score would be far too "
                "high; join the subwords first, or pass --allow-subword-marks"
            )


def remarks(
    systems: Sequence[tuple[str, list[str]]], references: Sequence[tuple[str, list[str]]], scores: Sequence[Score]
) -> Iterator[str]:
    """Yield notes about text that is scored as it is, but probably should not be."""
    for name, lines in [*references, *systems]:
        tokenized = [number for number, line in enumerate(lines, 1) if _TOKENIZED.search(line)]
        if len(tokenized) >= _TOKENIZED_SHARE * len(lines):
            yield (
                f"{name} looks tokenized (line {tokenized[0]}): detokenize it before scoring, or use "
                "--metric multi-bleu-untokenised"
            )
    cased = any("|case:mixed|" in score.signature for score in scores)
    if cased and any(line != line.lower() for _, lines in references for line in lines):
        for name, lines in systems:
            if "".join(lines).islower():
                yield f"{name} has no upper case, but the references have: --metric bleu-lc does not count case"
