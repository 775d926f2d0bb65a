"""The importers of `nmt import`: entry points of the group `nmt.importers`.

An importer is a module with a string and two functions:

    takes: str          # such as "a folder of Hugging Face Transformers with a MarianMTModel"
    def recognises(path: Path, saved: Mapping[str, Any]) -> bool
    def read(path: Path, saved: Mapping[str, Any], options: ImportOptions) -> Imported

`saved` is what `torch.save` wrote into the file `path`, and empty for a folder. `read` raises
CheckpointError if a file is missing or damaged, or no Transformer of ours can express the model,
and UsageError if an option is missing or wrong.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from nmt_cli import registry
from nmt_cli.annexes.exchange.importing.checks import saved_objects
from nmt_cli.annexes.exchange.importing.options import ImportOptions
from nmt_cli.checkpoint import Contents
from nmt_cli.errors import CheckpointError, NmtError, shown


class Imported(NamedTuple):
    """The parts of a checkpoint."""

    contents: Contents
    weights: dict[str, Tensor]
    task: Any


def read_model(path: Path, options: ImportOptions) -> Imported:
    """Return what the importer that recognises `path` reads.

    Raises: as `read`, and
        CheckpointError: no importer recognises it, or it has anything but data.
    """
    importers = registry.entries("nmt.importers")
    saved = saved_objects(path) if path.is_file() else {}
    for importer in importers:
        if importer.recognises(path, saved):
            break
    else:
        problem = "cannot be imported" if path.exists() else "no such file or directory"
        takes = "; ".join(sorted(importer.takes for importer in importers))
        raise CheckpointError(f"{path}: {problem}. These can be imported: {takes}")
    try:
        with warnings.catch_warnings(action="ignore"):  # of torch, about tensors that are refused
            imported: Imported = importer.read(path, saved, options)
    except (NmtError, MemoryError):
        raise
    except Exception as error:  # a damaged file may have anything
        raise CheckpointError(f"{path}: cannot be imported: {shown(error, 200)}") from error
    return imported
