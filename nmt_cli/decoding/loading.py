"""Loading of checkpoints into a translator, by engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from nmt_cli.decoding import engine as engines
from nmt_cli.decoding import own_engine
from nmt_cli.decoding.options import DTYPES, TranslateOptions
from nmt_cli.decoding.translator import Translator
from nmt_cli.decoding.unknown_words import read_dictionary
from nmt_cli.device import choose_device
from nmt_cli.errors import UsageError


def load_translator(
    checkpoints: Sequence[Path],
    options: TranslateOptions | None = None,
    *,
    device: str = "auto",
    dtype: str = "auto",
    workers: int | None = None,
    dictionary: Path | None = None,
    engine: str = engines.OWN,
    scores: bool = True,
    say: Callable[[str], None] = lambda message: None,
) -> Translator:
    """Return the translator of a checkpoint, or of several as an ensemble.

    Args:
        checkpoints: checkpoints, or runs, which stand for their newest checkpoints.
        device: auto, cpu, cuda or cuda:N.
        dtype: of the matrix products: float32 (`auto`), bfloat16 or int8.
        dictionary: a file of translations for `replace_unknown`.
        engine: the program that searches.
        workers, scores, say: as in `engine.Loading`.

    Raises:
        UsageError: no checkpoint is given, or a device, dtype, option or engine is unknown or does not fit.
        CheckpointError: a checkpoint is missing or damaged, or does not fit the others.
        DataError: the dictionary cannot be read.
        NmtError: as `engine.Load`.
    """
    if not checkpoints:
        raise UsageError("give a checkpoint: the directory that `nmt train` or `nmt average` wrote")
    if dtype not in DTYPES:
        raise UsageError(f"dtype must be {', '.join(DTYPES[:-1])} or {DTYPES[-1]}, not {dtype!r}")
    translations = read_dictionary(dictionary) if dictionary else {}
    load = own_engine.load if engine == engines.OWN else engines.find(engine)
    loading = engines.Loading(
        checkpoints=checkpoints,
        options=options or TranslateOptions(),
        device=choose_device(device),
        dtype=dtype,
        workers=workers,
        scores=scores,
        say=say,
    )
    return Translator(load(loading), loading.options, translations)
