"""The files that `nmt score` reads, and the checks on them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from nmt_cli.data.marks import MOSES, SUBWORDS
from nmt_cli.errors import DataError
from nmt_cli.files.text import read_lines
from nmt_cli.metrics.bleu import Score
from nmt_cli.streams import say

STANDARD_INPUT = "-"

_BYTE_ORDER_MARK = "\ufeff"
_TOKENIZED = re.compile(rf"{MOSES.pattern}| [.,](?= |$)")
_TOKENIZED_SHARE = 0.2  # of the lines; tokenized text has such a mark in most lines, plain text in very few
_NOT_AS_MOSES = re.compile("[\u0900-\u0dff\u1100-\u11ff\u2e80-\u9fff\uac00-\ud7ff\U0001d400-\U0001d7ff]")
"""Indic scripts, Hangul, Chinese and Japanese characters, mathematical letters."""
_OTHER_SCRIPT_SHARE = 0.01  # of the lines
_TREE = re.compile(r"\s*\(.*\)\s*")


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


def remarks(name: str, lines: Sequence[str]) -> Iterator[str]:
    """Yield notes about text that is scored as it is, but probably should not be."""
    if lines[0].startswith(_BYTE_ORDER_MARK):
        yield f"{name} begins with a byte-order mark; it counts as a part of the first word, as in sacreBLEU"
    if any(lines) and all(_TREE.fullmatch(line) for line in lines if line):
        yield "these look like parse trees; `nmt score-trees` scores those"
        return
    tokenized = [number for number, line in enumerate(lines, 1) if _TOKENIZED.search(line)]
    if len(tokenized) >= _TOKENIZED_SHARE * len(lines):
        yield (
            f"{name} looks tokenized (line {tokenized[0]}): detokenize it before scoring, or use "
            "--metric multi-bleu-untokenised"
        )


def note_doubtful_scores(
    systems: Sequence[tuple[str, list[str]]], references: Sequence[tuple[str, list[str]]], scores: Sequence[Score]
) -> None:
    """Print notes about scores that depend on case, of systems without upper case; and on Moses in other scripts."""
    cased = any("|case:mixed|" in score.signature for score in scores)
    if cased and any(line != line.lower() for _, lines in references for line in lines):
        for name, lines in systems:
            if "".join(lines).islower():
                say(f"note: {name} has no upper case, but the references have: --metric bleu-lc does not count case")
    if any("|moses:" in score.signature for score in scores):
        for name, lines in references:
            if sum(map(bool, map(_NOT_AS_MOSES.search, lines))) > _OTHER_SCRIPT_SHARE * len(lines):
                say(f"note: {name} has characters that sacremoses splits differently than Moses: prefer --metric bleu")
