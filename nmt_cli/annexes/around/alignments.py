"""`nmt translate --alignments`: the links of words, in `Output.alignment` and in a file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from nmt_cli.annexes.around.attention import Aligner
from nmt_cli.annexes.around.settings import AlignmentsConfig
from nmt_cli.annexes.around.words import ALIGNMENT
from nmt_cli.decoding.around import Around
from nmt_cli.decoding.engine import Engine, Request
from nmt_cli.decoding.options import TranslateOptions
from nmt_cli.decoding.outputs import Output


class Alignments(Around):
    """Aligns the words of outputs, which stand between spaces."""

    order = 40
    takes_prefix = True
    needs_models = True
    aligns_words = True

    def __init__(
        self, config: AlignmentsConfig, *, engine: Engine, options: TranslateOptions
    ) -> None:
        self._aligner = Aligner(engine, options.get("tag"))
        self.file = Path(config.alignments) if config.alignments else None

    def revise(self, batch: Sequence[Request], outputs: list[list[Output]]) -> list[list[Output]]:
        """See `Around`."""
        return self._aligner.linked(batch, outputs, ALIGNMENT)

    def row(self, output: Output) -> str:
        """Return the links in the form of Pharaoh: `0-0 1-2`."""
        return " ".join(f"{i}-{j}" for i, j in output.alignment)
