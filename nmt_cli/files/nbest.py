"""N-best lists, as `nmt translate --nbest N` writes them: line number (from 1), score and text, separated by tabs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from nmt_cli.errors import DataError
from nmt_cli.files.text import read_lines


class Candidate(NamedTuple):
    """An output of a line."""

    text: str
    score: float


def read_nbest(path: Path | None) -> Iterator[list[Candidate]]:
    """Yield the outputs of each line of the input, in the order of the file; of standard input where `path` is None.

    Raises:
        DataError: the file cannot be read, a line has another form, or a line of the input has no output.
    """
    count, found = 1, list[Candidate]()
    for place, line in enumerate(read_lines(path), 1):
        where = f"{path or 'standard input'}:{place}"
        try:
            number, score, text = line.split("\t")
            candidate = Candidate(text, float(score))
            following = int(number) - count
        except ValueError:
            form = "a line number, a score and a text, separated by tabs"
            advice = "`nmt translate --nbest 8 --format tsv` writes such a file"
            raise DataError(f"{where}: expected {form}, not {line!r:.60}; {advice}") from None
        if following not in ((0, 1) if found else (0,)):
            missing = count + bool(found)
            raise DataError(f"{where}: an output of line {number}, but line {missing} has none; lines are in order")
        if following:
            yield found
            count, found = count + 1, []
        found.append(candidate)
    if found:
        yield found
