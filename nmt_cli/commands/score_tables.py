"""The results of `nmt score`, as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from nmt_cli.metrics.bleu import Score
from nmt_cli.metrics.significance import Comparison
from nmt_cli.streams import columns

_LABELS = {"bleu": "BLEU", "chrf": "chrF2", "chrf++": "chrF2++", "ter": "TER"}
_SIGNIFICANT = 0.05


@dataclass(frozen=True)
class Report:
    """Everything that is printed."""

    systems: list[str]
    references: list[str]
    lines: int
    target_language: str | None  # of the Moses tokenizer, if it was used
    scores: list[Score]
    comparisons: list[Comparison]
    groups: dict[str, int]  # lines of each label

    def as_object(self) -> dict[str, Any]:
        """Return what `--json` prints."""
        return {key: value for key, value in asdict(self).items() if value not in ([], {})}

    def as_text(self) -> str:
        """Return the tables that are printed otherwise."""
        lines = self._scores() if len(self.systems) == 1 else self._systems()
        if self.groups:
            lines += ["", *self._groups()]
        return "".join(f"{line}\n" for line in lines)

    def _scores(self) -> list[str]:
        """Return the table of one system, a row for each metric."""
        rows = [
            [_label(score.metric), f"{score.score:.2f}", score.signature] for score in self.scores
        ]
        return list(columns(rows, numbers=(1,)))

    def _systems(self) -> list[str]:
        """Return the table of several systems, a column for each metric, and the signatures."""
        labels = list(dict.fromkeys(_label(score.metric) for score in self.scores))
        cells = self.comparisons or self.scores
        rows = [["system", *labels]]
        for system in self.systems:
            rows.append([system, *(_cell(cell) for cell in cells if cell.system == system)])
        lines = list(columns(rows, numbers=range(1, len(labels) + 1)))
        if self.comparisons:
            lines += [
                "p: probability of a difference from the first system this large, if both are "
                f"equally good; *: below {_SIGNIFICANT}.",
                "±: half the width of the 95% confidence interval.",
            ]
        signatures = {_label(cell.metric): cell.signature for cell in cells}
        return [*lines, "", *columns(list(signatures.items()))]

    def _groups(self) -> Iterator[str]:
        """Return the table of groups of lines, a column for each score."""
        header = ["group", "lines"]
        for score in self.scores:
            label = _label(score.metric)
            header.append(label if len(self.systems) == 1 else f"{score.system} {label}")
        rows = [header]
        for group, count in self.groups.items():
            scores = [f"{score.groups[group]:.2f}" for score in self.scores]
            rows.append([group, str(count), *scores])
        return columns(rows, numbers=range(1, len(header)))


def parts_of_bleu(score: Score) -> str:
    """Return a line about the parts of BLEU.

    Outputs that repeat or leave out words have a length ratio unlike 1.
    """
    details = score.details
    precisions = "/".join(f"{precision:.1f}" for precision in details["precisions"])
    ratio = details["hypothesis_length"] / max(details["reference_length"], 1)
    return (
        f"{_label(score.metric)}: precisions {precisions}, brevity penalty "
        f"{details['brevity_penalty']:.3f}, length ratio {ratio:.3f}"
    )


def _label(metric: str) -> str:
    return _LABELS.get(metric, metric)


def _cell(cell: Score | Comparison) -> str:
    text = f"{cell.score:.2f}"
    if isinstance(cell, Comparison):
        if cell.interval is not None:
            text += f" ± {cell.interval:.2f}"
        if cell.p_value is not None:
            star = "*" if cell.p_value < _SIGNIFICANT else ""
            text += f" (p={cell.p_value:.4f}{star})"
    return text
