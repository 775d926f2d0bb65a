"""The results of `nmt score`, as text and as JSON."""

from __future__ import annotations

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
        labels = {score.metric: _LABELS.get(score.metric, score.metric) for score in self.scores}
        cells = self.comparisons or self.scores
        if len(self.systems) == 1:
            rows = [
                [labels[score.metric], f"{score.score:.2f}", score.signature]
                for score in self.scores
            ]
            lines = list(columns(rows, numbers=(1,)))
        else:
            rows = [["system", *labels.values()]]
            for system in self.systems:
                rows.append([system, *(_cell(cell) for cell in cells if cell.system == system)])
            lines = list(columns(rows, numbers=range(1, len(labels) + 1)))
            if self.comparisons:
                lines += [
                    "p: probability of a difference from the first system this large, if both are "
                    "equally good;"
                    f" *: below {_SIGNIFICANT}.",
                    "±: half the width of the 95% confidence interval.",
                ]
            signatures = {labels[cell.metric]: cell.signature for cell in cells}
            lines += ["", *columns(list(signatures.items()))]
        if self.groups:
            names = [f"{score.system} {labels[score.metric]}" for score in self.scores]
            rows = [["group", "lines", *(names if len(self.systems) > 1 else labels.values())]]
            for group, count in self.groups.items():
                rows.append(
                    [group, str(count), *(f"{score.groups[group]:.2f}" for score in self.scores)]
                )
            lines += ["", *columns(rows, numbers=range(1, len(rows[0])))]
        return "".join(f"{line}\n" for line in lines)


def parts_of_bleu(score: Score) -> str:
    """Return a line about the parts of BLEU. Outputs that repeat or leave out words have a length
    ratio unlike 1.
    """
    details = score.details
    precisions = "/".join(f"{precision:.1f}" for precision in details["precisions"])
    ratio = details["hypothesis_length"] / max(details["reference_length"], 1)
    label = _LABELS.get(score.metric, score.metric)
    return f"{label}: precisions {precisions}, brevity penalty {details['brevity_penalty']:.3f}, length ratio {ratio:.3f}"


def _cell(cell: Score | Comparison) -> str:
    text = f"{cell.score:.2f}"
    if isinstance(cell, Comparison):
        text += f" ± {cell.interval:.2f}" if cell.interval is not None else ""
        if cell.p_value is not None:
            text += f" (p={cell.p_value:.4f}{'*' if cell.p_value < _SIGNIFICANT else ''})"
    return text
