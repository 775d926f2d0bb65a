"""Loading of checkpoints into a translator."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from nmt_cli.checkpoint import load_model, locate
from nmt_cli.decoding.ensemble import Ensemble
from nmt_cli.decoding.options import DTYPES, TranslateOptions, with_options
from nmt_cli.decoding.translator import Translator
from nmt_cli.decoding.unknown_words import read_dictionary
from nmt_cli.device import bound_product_cache, choose_device, is_out_of_memory
from nmt_cli.errors import CheckpointError, NmtError, UsageError
from nmt_cli.interfaces import Task


def load_translator(
    checkpoints: Sequence[Path],
    device: str = "auto",
    choices: Mapping[str, Any] | None = None,
    dtype: str = "auto",
    say: Callable[[str], None] = lambda message: None,
    dictionary: Path | None = None,
) -> Translator:
    """Return the translator of a checkpoint, or of several as an ensemble.

    Args:
        checkpoints: checkpoints, or runs, whose newest checkpoint is used.
        device: auto, cpu, cuda or cuda:N.
        choices: options by name, as in `with_options`; the task gives the defaults.
        dtype: of the matrix products: float32 (`auto`), bfloat16 or int8.
        say: called with a message when a run is given.
        dictionary: a file of translations for `replace_unknown`.

    Raises:
        UsageError: no checkpoint is given, or a device, dtype or option is unknown.
        CheckpointError: a checkpoint is missing or damaged, or does not fit the others.
        DataError: the dictionary cannot be read.
    """
    if not checkpoints:
        raise UsageError("give a checkpoint: the directory that `nmt train` or `nmt average` wrote")
    if dtype not in DTYPES:
        raise UsageError(f"dtype must be {', '.join(DTYPES[:-1])} or {DTYPES[-1]}, not {dtype!r}")
    translations = read_dictionary(dictionary) if dictionary else {}
    place = choose_device(device)
    bound_product_cache()
    folders = [locate(path) for path in checkpoints]
    try:
        models, tasks = zip(*(load_model(folder, place) for folder in folders), strict=True)
        decodables = [model.decodable("float32" if dtype == "auto" else dtype) for model in models]
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        raise NmtError(f"{', '.join(map(str, folders))}: out of memory on {place}; use another device") from error
    for folder, task in zip(folders[1:], tasks[1:], strict=True):
        _check_same_vocabularies(folders[0], tasks[0], folder, task)
    decodable = decodables[0] if len(models) == 1 else Ensemble(decodables)
    translator = Translator(tasks[0], decodable, place, task_options(tasks[0], choices or {}), models, translations)
    for path, folder in zip(checkpoints, folders, strict=True):
        if folder != path:
            say(f"{path}: using {folder}")
    return translator


def task_options(task: Task, chosen: Mapping[str, Any]) -> TranslateOptions:
    """Return the options `chosen` by the user, with the defaults of the task."""
    return with_options(with_options(TranslateOptions(), task.search_defaults), chosen)


def _check_same_vocabularies(first: Path, first_task: Task, other: Path, other_task: Task) -> None:
    """Raise CheckpointError unless a text has the same ids in both tasks."""
    difference = first_task.difference(other_task)
    if difference is not None:
        raise CheckpointError(
            f"{other} and {first} cannot be an ensemble: they differ in the {difference}. Train the models on the same "
            "prepared data, or on data prepared with the same subwords."
        )
