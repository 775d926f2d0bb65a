"""The toolkit from Python: load a checkpoint, translate, score.

>>> import nmt_cli
>>> translator = nmt_cli.load("RUN/averaged")                       # doctest: +SKIP
>>> translator.translate(["A dog runs.", "Two men talk."], beam=4)  # doctest: +SKIP
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from nmt_cli.decoding.loading import load_translator
from nmt_cli.decoding.options import with_options
from nmt_cli.decoding.translator import Output, Translation
from nmt_cli.decoding.translator import Translator as LineTranslator
from nmt_cli.errors import UsageError
from nmt_cli.metrics.bleu import Score, score

__all__ = ["Output", "Score", "Translation", "Translator", "score"]

CheckpointPath = str | os.PathLike[str]


class Translator:
    """A loaded model. Several threads may use one at the same time.

    The options that its methods take are, of the search: `beam` (4), `alpha` (0.6),
    `nbest` (1), `min_length` (0), `unknown` (False); and of how lines are batched: `batch_tokens` (4096), `read_ahead`
    (1024 lines), `max_source_length` (1024 tokens), `max_length_offset` (the task's own), `constrained` (False).
    `beam=1` is greedy search.
    """

    def __init__(self, translator: LineTranslator) -> None:
        self._translator = translator

    @classmethod
    def load(
        cls, checkpoints: CheckpointPath | Sequence[CheckpointPath], device: str = "auto", **options: int | float | bool
    ) -> Translator:
        """Loads a checkpoint, or several as an ensemble; a run's folder stands for its newest checkpoint.

        Args:
            device: auto, cpu, cuda or cuda:N.
            options: defaults for the options of the class.

        Raises:
            UsageError: an unknown or unfit option or device.
            CheckpointError: a folder is no checkpoint, is damaged, or does not fit the others.
        """
        several = [checkpoints] if isinstance(checkpoints, (str, os.PathLike)) else list(checkpoints)
        return cls(load_translator([Path(path) for path in several], device, options))

    def translate(self, lines: Sequence[str], **options: int | float | bool) -> list[str]:
        """The best output of each line, in order; an empty line gives an empty output.

        Raises:
            UsageError: an unknown or unfit option.
        """
        return [result.text for result in self.translate_detailed(lines, **options)]

    def translate_detailed(self, lines: Iterable[str], **options: int | float | bool) -> Iterator[Translation]:
        """The same with scores, pieces and `nbest` outputs of each line; streams, so `lines` may be endless.

        Raises:
            UsageError: an unknown or unfit option; `lines` is a single string.
        """
        if isinstance(lines, str):
            raise UsageError("translate takes a list of lines, not a single string: write [line]")
        chosen = with_options(self._translator.options, options)
        return dataclasses.replace(self._translator, options=chosen).translate(lines)
