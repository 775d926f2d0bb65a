"""Source lines to check an export on."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

from nmt_cli.data.corpus import Corpus
from nmt_cli.data.vocabulary import SPACE
from nmt_cli.errors import DataError, UsageError
from nmt_cli.interfaces import SPECIAL_SYMBOLS
from nmt_cli.task import Task
from nmt_cli.training.run_directory import read_config

LINES = 32  # maximum number of lines
LONGEST = 512  # tokens that each line has less than


def sample_lines(folder: Path, task: Task) -> tuple[list[str], str]:
    """Return source lines for the checkpoint `folder`, and where they come from, for a report.

    They are of the validation text if the checkpoint is in its run, and the run's data is where it was; else they are
    drawn from the vocabulary.
    """
    found = _validation_lines(folder)
    lines = _usable(found[:: max(1, -(-len(found) // LINES))], task)
    if lines:
        return lines, "sentences of the validation text"
    return _usable(_drawn_lines(task), task), "sentences made of random entries of the vocabulary"


def _usable(lines: Sequence[str], task: Task) -> list[str]:
    """Return the lines that have tokens, and not so many that another program cannot take them."""
    return [line for line in lines if 0 < len(task.encode_source(line)) < LONGEST]


def _validation_lines(folder: Path) -> list[str]:
    """Return the source lines of the validation text of the run that the checkpoint is in; none if it is not there."""
    for run in folder.resolve().parents[:2]:  # of RUN/averaged and RUN/checkpoints/NAME
        try:
            data = Path(read_config(run)["data"]["path"])
            return [line for line in Corpus.open(data, "valid").raw_source() if line.strip()]
        except (UsageError, DataError):
            continue
    return []


def _drawn_lines(task: Task) -> list[str]:
    size = task.source_vocabulary_size
    entries = range(len(SPECIAL_SYMBOLS), size) if size > len(SPECIAL_SYMBOLS) else range(size)
    draw = random.Random(1)
    rows = [task.source_tokens(draw.choices(entries, k=draw.randint(1, 30))) for _ in range(LINES)]
    subwords = any(SPACE in token for token in task.source_tokens(entries))
    return [("".join(row).replace(SPACE, " ") if subwords else " ".join(row)).strip() for row in rows]
