"""The toolkit from Python: load a checkpoint, translate, score.

>>> import nmt_cli
>>> translator = nmt_cli.load("RUN/averaged")                       # doctest: +SKIP
>>> translator.translate(["A dog runs.", "Two men talk."], beam=4)  # doctest: +SKIP
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from nmt_cli.decoding.loading import load_translator
from nmt_cli.decoding.options import TranslateOptions
from nmt_cli.decoding.outputs import Output, TargetScore, Translation
from nmt_cli.decoding.translator import Translator
from nmt_cli.errors import CheckpointError, UsageError
from nmt_cli.metrics.bleu import Score, score

__all__ = ["Output", "Score", "TargetScore", "Translation", "Translator", "load", "score"]

CheckpointPath = str | os.PathLike[str]


def load(
    checkpoints: CheckpointPath | Sequence[CheckpointPath],
    device: str | torch.device = "auto",
    dtype: str = "auto",
    engine: str = "nmt",
    **options: Any,
) -> Translator:
    """Load a checkpoint, or several as an ensemble. A run stands for its newest checkpoint.

    On a CPU, the process then keeps memory that is freed, for its next tensors.

    >>> translator = nmt_cli.load("RUN/averaged", device="cpu", beam=8, alpha=1.0)  # doctest: +SKIP

    Args:
        device: auto, cpu, cuda or cuda:N.
        dtype: of the matrix products: auto (float32 on a CPU), float32, bfloat16, float16 or int8.
        engine: the program that searches: nmt, or one that is installed beside it.
        options: of `Translator.translate`, where a call does not give them.

    Raises:
        UsageError: a device or engine is unknown, an option is unknown or out of range, or the
            engine lacks something.
        CheckpointError: a checkpoint is missing or damaged, or does not fit the others.
        DataError: a file of an option cannot be read.
    """
    chosen = TranslateOptions().replaced(options)
    if isinstance(checkpoints, (str, os.PathLike)):
        checkpoints = [checkpoints]
    try:
        paths = [Path(checkpoint) for checkpoint in checkpoints]
    except TypeError as error:
        raise UsageError(f"load takes paths of checkpoints: {error}") from error
    try:
        return load_translator(
            paths, chosen, device=str(device), dtype=str(dtype), engine=str(engine)
        )
    except OSError as error:
        raise CheckpointError(f"{error.filename}: {error.strerror}") from error
