"""The toolkit from Python: load a checkpoint, translate, score.

>>> import nmt_cli
>>> translator = nmt_cli.load("RUN/averaged")                       # doctest: +SKIP
>>> translator.translate(["A dog runs.", "Two men talk."], beam=4)  # doctest: +SKIP
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from nmt_cli.decoding.options import ModelOptions
from nmt_cli.decoding.outputs import Output, Translation
from nmt_cli.decoding.scoring import TargetScore
from nmt_cli.decoding.translator import Translator
from nmt_cli.export.loading import load_with
from nmt_cli.metrics.bleu import Score, score

__all__ = ["Output", "Score", "TargetScore", "Translation", "Translator", "load", "score"]

CheckpointPath = str | os.PathLike[str]


def load(
    checkpoints: CheckpointPath | Sequence[CheckpointPath],
    device: str = "auto",
    dtype: str = "auto",
    dictionary: str | os.PathLike[str] | None = None,
    engine: str = "nmt",
    **options: int | float | bool | str,
) -> Translator:
    """Load a checkpoint, or several as an ensemble; a run stands for its newest checkpoint.

    Args:
        device: auto, cpu, cuda or cuda:N.
        dtype: of the matrix products: auto (float32), float32, bfloat16 or int8.
        dictionary: a file of translations of source words, for `replace_unknown`.
        engine: the program that searches: nmt, or ctranslate2, which translates with an export of one checkpoint.
        options: the translator's options, such as `beam=4`.

    Raises:
        UsageError: an option, device or engine is unknown, a value is out of range, or the engine lacks something.
        CheckpointError: a checkpoint is missing or damaged, or does not fit the others.
        DataError: the dictionary cannot be read.
    """
    several = [checkpoints] if isinstance(checkpoints, (str, os.PathLike)) else checkpoints
    paths, words = tuple(map(Path, several)), None if dictionary is None else Path(dictionary)
    return load_with(
        ModelOptions(checkpoints=paths, device=device, dtype=dtype, dictionary=words, engine=engine, chosen=options)
    )
