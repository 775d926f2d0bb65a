"""N-best lists, as `nmt translate --nbest N` writes them.

A line has a line number (from 1), a score and a text, separated by tabs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

from nmt_cli.errors import DataError, shown
from nmt_cli.files.text import read_lines

Candidate = tuple[float, str]  # score and text


def read_nbest(path: Path | None) -> Iterator[list[Candidate]]:
    """Yield the outputs of each line of the input, in the order of the file.

    Args:
        path: None is standard input.

    Raises:
        DataError: the file cannot be read, a line has another form, or a line of the input has no
            output.
    """
    current = 1  # the line of the input whose outputs are read
    candidates: list[Candidate] = []
    for place, line in enumerate(read_lines(path), 1):
        where = f"{path or 'standard input'}:{place}"
        try:
            number_text, score_text, text = line.split("\t")
            number = int(number_text)
            score = float(score_text)
            if not math.isfinite(score):
                raise ValueError
        except ValueError:
            form = "a line number, a finite score and a text, separated by tabs"
            advice = "`nmt translate --nbest 8 --format tsv` writes such a file"
            raise DataError(f"{where}: expected {form}, not {shown(line)}; {advice}") from None
        if candidates and number == current + 1:
            yield candidates
            current = number
            candidates = []
        elif number != current:
            expected = current + 1 if candidates else current
            raise DataError(
                f"{where}: expected an output of line {expected}, not {number}: one is missing"
            )
        candidates.append((score, text))
    if candidates:
        yield candidates
