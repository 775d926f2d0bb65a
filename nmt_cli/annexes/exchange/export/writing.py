"""Writing of an export: a directory that is whole or absent, with a record of what it is."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nmt_cli import __version__, checkpoint
from nmt_cli.annexes.exchange.export.formats import module_of
from nmt_cli.data.vocabulary import SPACE
from nmt_cli.errors import DataError
from nmt_cli.files.staging import staged
from nmt_cli.files.text import fingerprint, read_object, write_object
from nmt_cli.interfaces import SPECIAL_SYMBOLS
from nmt_cli.task import Task

LINES = 32  # to check an export on
RECORD = checkpoint.EXPORT  # says what an export is, of which checkpoint, and names its files


def write_export(
    folder: Path,
    to: str,
    out: Path,
    *,
    quantization: str = "float32",
    overwrite: bool = False,
    say: Callable[[str], None] = lambda message: None,
) -> None:
    """Write the checkpoint `folder` in the format `to` as the directory `out`, with its task;
    nothing on an error.

    Raises:
        UsageError: `out` is in use, the format's package is missing, or the format cannot express
            the model.
        CheckpointError: the checkpoint is damaged, or the other program computes something else.
    """
    convert = module_of(to).export
    recorded = record_of(out).get("files")
    # Of a damaged record: none.
    files = [str(name) for name in recorded] if isinstance(recorded, list) else []
    with staged(out, overwrite=overwrite, ours=files, marker=RECORD) as aside:
        model, task = checkpoint.load_model(folder)
        samples = sample_lines(task)
        report = convert(model, task, samples, aside, quantization)
        (aside / checkpoint.TASK).mkdir()
        task.save(aside / checkpoint.TASK)
        record = {
            "format": to,
            "nmt": __version__,
            "checkpoint": fingerprint_of(folder),
            "files": sorted(
                {path.name for path in aside.iterdir() if not path.name.startswith(".")} | {RECORD}
            ),
        }
        write_object(aside / RECORD, record)
    say(f"checked on {len(samples)} lines made of random entries of the vocabulary:")
    for line in report:
        say(f"  {line}")


def sample_lines(task: Task) -> list[str]:
    """Return source lines made of random entries of the vocabulary, the same at every call."""
    entries = range(len(SPECIAL_SYMBOLS), task.source_vocabulary_size)
    draw = random.Random(1)
    rows = [task.source_tokens(draw.choices(entries, k=draw.randint(1, 30))) for _ in range(LINES)]
    subwords = any(SPACE in token for token in task.source_tokens(entries))
    lines = [
        ("".join(row).replace(SPACE, " ") if subwords else " ".join(row)).strip() for row in rows
    ]
    return [line for line in lines if task.encode_source(line)]


def fingerprint_of(folder: Path) -> str:
    """Return what changes whenever a file of the checkpoint `folder` does."""
    return fingerprint(folder / checkpoint.CHECKSUMS)


def record_of(out: Path) -> dict[str, Any]:
    """Return the record of the export `out`; empty if it is no export."""
    try:
        return read_object(out / RECORD, DataError, "")
    except DataError:
        return {}
