"""Metrics that are functions: of annexes, or MODULE:FUNCTION of `nmt score --metric`.

A function is called with the hypotheses, the references and the sources, lists of strings, and a
measure's settings by name. It returns a list with a number for each line, of which the score is the
mean, or with a pair for each line: the score is the sum of the first numbers divided by the sum of
the second. It may return one number for all lines.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from nmt_cli.errors import UsageError


class FunctionMetric:
    """A function with the methods that sacreBLEU's paired tests call. Statistics: [lines, 2]."""

    def __init__(
        self, metric: str, place: str, settings: Mapping[str, Any], sources: Sequence[str]
    ) -> None:
        """Raise UsageError if the function at `place`, MODULE:FUNCTION, cannot be imported."""
        self.metric = metric
        self.settings = settings
        self.sources = list(sources)
        try:
            self.function = pkgutil.resolve_name(place)
        except (ImportError, AttributeError, ValueError) as error:
            raise UsageError(
                f"metric {metric}: cannot import it: {error}. Give MODULE:FUNCTION, with a module "
                "that is installed or in a directory of PYTHONPATH."
            ) from error

    def statistics(
        self, hypotheses: Sequence[str], references: Sequence[Sequence[str]], whole: bool = False
    ) -> npt.NDArray[np.float64]:
        """Call the function. If `whole`, it may return one number for all lines: one pair."""
        if len(references) > 1:
            raise UsageError(f"metric {self.metric} compares with one reference: give one --ref")
        lines = list(hypotheses), list(references[0]), self.sources
        try:
            rows = np.asarray(self.function(*lines, **self.settings), dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise UsageError(
                f"metric {self.metric}: {type(error).__name__}: {error}. It returns numbers"
            ) from error
        if whole and rows.ndim == 0:
            rows = rows[None]
        elif rows.shape[:1] != (len(hypotheses),):
            returned = "one number, so there are no tests, groups or lines,"
            if rows.ndim:
                returned = f"{len(rows):,} values"
            raise UsageError(
                f"metric {self.metric}: it returned {returned} for {len(hypotheses):,} lines"
            )
        if rows.ndim == 2:
            return rows
        return np.stack([rows, np.ones_like(rows)], axis=1)  # a mean over the lines

    _extract_corpus_statistics = statistics

    def _aggregate_and_compute(self, statistics: npt.ArrayLike) -> Any:
        return self._compute_score_from_stats(np.sum(statistics, axis=0))

    def _compute_score_from_stats(self, sums: Sequence[float]) -> Any:
        from sacrebleu.metrics.base import Score

        return Score(self.metric, float(sums[0]) / (float(sums[1]) or 1.0))

    def get_signature(self) -> Any:
        """Return a signature without sacreBLEU's version, which has no part in the score."""
        from sacrebleu.metrics.base import Signature

        signature = Signature({"num_refs": 1})
        signature.update("version", None)
        return signature
