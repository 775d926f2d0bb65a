"""What `nmt score` reads: files exactly as they are, standard input, and what is refused or remarked on in them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from nmt_cli.errors import DataError
from nmt_cli.files.text import read_lines

STANDARD_INPUT = "-"

_BYTE_ORDER_MARK = "\ufeff"
_SUBWORD_MARK = re.compile(r"@@(?= |$)|\u2581")
_TOKENISED = re.compile(r"&apos;|&quot;|@-@|##AT##| [.,](?= |$)")
_TOKENISED_SHARE = 0.2  # of the lines; tokenised text has such a mark in most lines, plain text in next to none


@dataclass(frozen=True)
class Segments:
    """A file's lines, and its name for messages."""

    name: str
    lines: list[str]


def read_segments(name: str) -> Segments:
    """The lines of a file (plain or gzip, or a pipe) or, named "-", of standard input.

    Lines end at the line feed alone. A byte-order mark is kept: it is a part of the output that was published, and
    the scores published for it count it in. So are white space and empty lines; only a carriage return is dropped.

    Raises:
        DataError: missing, unreadable, damaged, not UTF-8, or without a line.
    """
    path = None if name == STANDARD_INPUT else Path(name)
    lines = list(read_lines(path, keep_mark=True))
    shown = "standard input" if path is None else name
    if not lines:
        raise DataError(f"{shown}: empty; there is nothing to score")
    return Segments(shown, lines)


def check_subword_marks(segments: Segments) -> None:
    """Raises DataError at the first line that still holds pieces of words, whose BLEU would be far too high."""
    for number, line in enumerate(segments.lines, 1):
        if mark := _SUBWORD_MARK.search(line):
            what = "'@@', as BPE" if mark[0] == "@@" else "U+2581, as SentencePiece"
            raise DataError(
                f"{segments.name}:{number}: this line still holds subword marks ({what} writes them), and a score of "
                "pieces is no score of words; join the pieces first, or insist with --allow-subword-marks"
            )


def check_counts(segments: Segments, reference: Segments) -> None:
    """Raises DataError unless both have as many lines."""
    if len(segments.lines) != len(reference.lines):
        raise DataError(
            f"{segments.name} has {len(segments.lines)} lines but {reference.name} has {len(reference.lines)}; "
            "line n of the one must translate the same sentence as line n of the other"
        )


def remarks(segments: Segments) -> Iterator[str]:
    """What a person should know about a file before believing its score."""
    if segments.lines[0].startswith(_BYTE_ORDER_MARK):
        yield f"{segments.name} begins with a byte-order mark; it counts as a part of the first word, as in sacreBLEU"
    tokenised = [number for number, line in enumerate(segments.lines, 1) if _TOKENISED.search(line)]
    if len(tokenised) >= _TOKENISED_SHARE * len(segments.lines):
        yield (
            f"{segments.name} looks tokenised (line {tokenised[0]}); scores are meant for plain text, and tokenising "
            "twice lowers them: detokenise it, or use --metric multi-bleu-untokenised"
        )
