"""The formats of `nmt export`: entry points of the group `nmt.formats`.

A format is a module with this function:

    def export(
        model: nn.Module,
        task: Task,
        samples: Sequence[str],
        folder: Path,
        quantization: str = "float32",
    ) -> Sequence[str]

It writes the model, in evaluation mode on the CPU, and what the other program needs of the task
into the existing directory `folder`, where `task/` is ours. It loads the directory in the other
program, compares log-probabilities and outputs of `samples`, source lines, with ours, and returns
lines that report the comparison. The comparison is in float32. `quantization` is the type of the
weights that are then left in the directory. It raises UsageError if the program cannot express the
model, and CheckpointError if the two differ. Nothing is then left of the export.

The module imports the program's package at its top. The extra that installs it has the name of the
format.
"""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

from nmt_cli.checkpoint import CHECKSUMS, EXPORT
from nmt_cli.errors import DataError, missing_package
from nmt_cli.files.text import fingerprint, read_object
from nmt_cli.registry import entry_points

FORMATS = entry_points("nmt.formats")

# Types of the weights in a file.
QUANTIZATIONS = ("float32", "float16", "bfloat16", "int16", "int8")


def module_of(to: str) -> ModuleType:
    """Import the module of a format.

    Raises:
        UsageError: a package that it needs is not installed.
    """
    try:
        module: ModuleType = FORMATS[to].load()
    except ModuleNotFoundError as error:
        raise missing_package(to, error, extra=to) from error
    return module


def fingerprint_of(folder: Path) -> str:
    """Return a fingerprint of all files of the checkpoint `folder`."""
    return fingerprint(folder / CHECKSUMS)


def record_of(out: Path) -> dict[str, Any]:
    """Return the record of the export `out`, or {} if it is no export."""
    try:
        return read_object(out / EXPORT, DataError, "")
    except DataError:
        return {}
