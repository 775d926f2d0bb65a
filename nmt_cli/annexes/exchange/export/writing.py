"""Writing of an export: a directory that is whole or absent, with a record of what it is."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

from nmt_cli import __version__
from nmt_cli.annexes.exchange.export.formats import fingerprint_of, module_of, record_of
from nmt_cli.checkpoint import EXPORT, TASK
from nmt_cli.data.vocabulary import SPACE
from nmt_cli.files.staging import staged
from nmt_cli.files.text import write_object
from nmt_cli.interfaces import SPECIAL_SYMBOLS
from nmt_cli.task import Task
from nmt_cli.weights import load_model

LINES = 32  # to check an export on


def write_export(
    folder: Path,
    to: str,
    out: Path,
    *,
    quantization: str = "float32",
    overwrite: bool = False,
    say: Callable[[str], None] = lambda message: None,
) -> None:
    """Write the checkpoint `folder` in the format `to` as the directory `out`, with its task.

    On an error nothing is written.

    Raises:
        UsageError: `out` is in use, the format's package is missing, or the format cannot express
            the model.
        CheckpointError: the checkpoint is damaged, or the other program computes something else.
    """
    convert = module_of(to).export
    old_files = record_of(out).get("files")
    if not isinstance(old_files, list):  # there is no record, or it is damaged
        old_files = []
    old_files = [str(name) for name in old_files]
    with staged(out, overwrite=overwrite, allowed=old_files, marker=EXPORT) as aside:
        model, task = load_model(folder)
        samples = sample_lines(task)
        report = convert(model, task, samples, aside, quantization)
        (aside / TASK).mkdir()
        task.save(aside / TASK)
        files = {path.name for path in aside.iterdir() if not path.name.startswith(".")}
        record = {
            "format": to,
            "nmt": __version__,
            "checkpoint": fingerprint_of(folder),
            "files": sorted(files | {EXPORT}),
        }
        write_object(aside / EXPORT, record)
    say(f"checked on {len(samples)} lines made of random entries of the vocabulary:")
    for line in report:
        say(f"  {line}")


def sample_lines(task: Task) -> list[str]:
    """Return source lines made of random entries of the vocabulary, the same at every call."""
    entries = range(len(SPECIAL_SYMBOLS), task.source_vocabulary_size)
    has_spaces = any(SPACE in token for token in task.source_tokens(entries))
    draw = random.Random(1)
    lines = []
    for _ in range(LINES):
        tokens = task.source_tokens(draw.choices(entries, k=draw.randint(1, 30)))
        line = "".join(tokens).replace(SPACE, " ") if has_spaces else " ".join(tokens)
        lines.append(line.strip())
    return [line for line in lines if task.encode_source(line)]
