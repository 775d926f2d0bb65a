"""Loading of checkpoints into a translator, by engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from nmt_cli.decoding import engine as engines
from nmt_cli.decoding.options import DTYPES, TranslateOptions
from nmt_cli.decoding.translator import Translator
from nmt_cli.errors import UsageError


def load_translator(
    checkpoints: Sequence[Path],
    options: TranslateOptions | None = None,
    *,
    device: str = "auto",
    dtype: str = "auto",
    workers: int | None = None,
    engine: str = engines.OWN,
    scores: bool = True,
    say: Callable[[str], None] = lambda message: None,
) -> Translator:
    """Return the translator of a checkpoint, or of several as an ensemble.

    Args and errors: as `nmt_cli.load`. For `workers`, `scores` and `say`, see `engine.Loading`.
    """
    if not checkpoints:
        raise UsageError("give a checkpoint: the directory that `nmt train` or `nmt average` wrote")
    if dtype not in DTYPES:
        raise UsageError(f"dtype must be {', '.join(DTYPES[:-1])} or {DTYPES[-1]}, not {dtype!r}")
    load: engines.Load
    if engine == engines.OWN:
        from nmt_cli.decoding.own_engine import load  # imports torch, which others do not need
    else:
        load = engines.find(engine)
    loading = engines.Loading(
        checkpoints=checkpoints,
        options=options or TranslateOptions(),
        device=device,
        dtype=dtype,
        workers=workers,
        scores=scores,
        say=say,
    )
    return Translator(load(loading), loading.options)
