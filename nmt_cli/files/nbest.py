"""N-best lists, as `nmt translate --nbest N` writes them: line number (from 1), score and text,
separated by tabs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

from nmt_cli.errors import DataError, shown
from nmt_cli.files.text import read_lines

Candidate = tuple[float, str]  # score and text


def read_nbest(path: Path | None) -> Iterator[list[Candidate]]:
    """Yield the outputs of each line of the input, in the order of the file; of standard input
    where `path` is None.

    Raises:
        DataError: the file cannot be read, a line has another form, or a line of the input has no
            output.
    """
    count = 1
    candidates: list[Candidate] = []
    for place, line in enumerate(read_lines(path), 1):
        where = f"{path or 'standard input'}:{place}"
        try:
            number, score, text = line.split("\t")
            candidate, steps = (float(score), text), int(number) - count
            if not math.isfinite(candidate[0]):
                raise ValueError
        except ValueError:
            form = "a line number, a finite score and a text, separated by tabs"
            advice = "`nmt translate --nbest 8 --format tsv` writes such a file"
            raise DataError(f"{where}: expected {form}, not {shown(line)}; {advice}") from None
        if steps not in ((0, 1) if candidates else (0,)):
            raise DataError(
                f"{where}: expected an output of line {count + bool(candidates)}, not {number}: "
                "one is missing"
            )
        if steps:
            yield candidates
            count += 1
            candidates = []
        candidates.append(candidate)
    if candidates:
        yield candidates
